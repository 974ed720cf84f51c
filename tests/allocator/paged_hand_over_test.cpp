// Bytes that streams have of each other in paged memory: what is waited for and what is not, which streams have memory
// of their own, frees that are claimed while others' work precedes them, and the figures of all that.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

class HandedOver : public ::testing::Test {
 protected:
  // For what `follow` asks of the driver.
  void SetUp() override {
    CUcontext context = nullptr;
    ASSERT_EQ(driver.api().primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver.api().ctx_set_current(context), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(driver.api().ctx_set_current(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver.api().primary_ctx_release(0), CUDA_SUCCESS);
  }

  void* take(std::size_t mebibytes, StreamHandle stream) { return allocator.allocate(mebibytes * kMega, stream); }
  void give(void* block) { allocator.deallocate(block); }
  // Work of the stream on the block's first bytes.
  void work(void* block, StreamHandle stream, std::chrono::nanoseconds time = 10ms) {
    driver.launch(stream, {}, {{block, 1024}}, time, [] {});
  }
  [[nodiscard]] std::int64_t reserved() const {
    return allocator.memory_stats().reserved_bytes.all.current / kSignedMega;
  }
  // Later work of the one stream is behind what the other has queued.
  void follow(StreamHandle later, StreamHandle earlier) {
    CUevent event = nullptr;
    ASSERT_EQ(driver.api().event_create(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    ASSERT_EQ(driver.api().event_record(event, earlier), CUDA_SUCCESS);
    ASSERT_EQ(driver.api().stream_wait_event(later, event, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver.api().event_destroy(event), CUDA_SUCCESS);
    ++own_waits;
  }
  // Those of the allocator.
  [[nodiscard]] std::uint64_t waits() const { return driver.calls("cuStreamWaitEvent") - own_waits; }
  [[nodiscard]] std::uint64_t memory_calls() const {
    return driver.calls("cuMemCreate") + driver.calls("cuMemMap") + driver.calls("cuMemSetAccess") +
           driver.calls("cuMemUnmap") + driver.calls("cuMemRelease");
  }
  [[nodiscard]] bool stands_alone(StreamHandle stream) const {
    for (const StreamStats& stats : allocator.stream_stats())
      if (stats.stream_id == driver_id(stream)) return stats.stands_alone;
    return false;
  }
  [[nodiscard]] std::vector<StreamHandle> streams(int count) {
    std::vector<StreamHandle> all;
    for (int i = 0; i < count; ++i) all.push_back(driver.create_stream());
    return all;
  }
  // The heap is sound, no work raced, and the host waited for nothing.
  void judge() {
    allocator.check();
    EXPECT_EQ(driver.host_synchronizations(), 0U);
    for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string();
  }
  // How long the device takes for so many rounds, in which each stream has a block of 64 MiB for a while.
  std::chrono::nanoseconds alternate(const std::vector<StreamHandle>& all, int rounds) {
    driver.run_until_idle();
    const auto began = driver.virtual_time();
    for (int round = 0; round < rounds; ++round)
      for (const StreamHandle stream : all) {
        void* block = take(64, stream);
        work(block, stream);
        give(block);
      }
    driver.run_until_idle();
    return driver.virtual_time() - began;
  }

  std::uint64_t own_waits = 0;
  SimulatedDriver driver{{.backing = Backing::none, .races = RaceMode::collect}};
  CachingAllocator allocator{
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:paged")}};

 private:
  [[nodiscard]] std::uint64_t driver_id(StreamHandle stream) const {
    unsigned long long id = 0;
    EXPECT_EQ(driver.api().stream_get_id(reinterpret_cast<CUstream>(stream), &id), CUDA_SUCCESS);
    return id;
  }
};

TEST_F(HandedOver, StreamsThatAlternateComeToHaveMemoryOfTheirOwn) {
  const std::vector<StreamHandle> all = streams(4);
  alternate(all, 20);
  EXPECT_EQ(reserved(), 4 * 64);
  const std::uint64_t waits_before = waits();
  const std::uint64_t calls_before = memory_calls();
  EXPECT_EQ(alternate(all, 50), 500ms) << "all at once";
  EXPECT_EQ(waits(), waits_before);
  EXPECT_EQ(memory_calls(), calls_before);
  EXPECT_EQ(reserved(), 4 * 64);
  EXPECT_GE(std::count_if(all.begin(), all.end(), [this](StreamHandle one) { return stands_alone(one); }), 3);
  judge();
  for (const StreamHandle stream : all) take(1, stream);  // by which its stream is known
  allocator.empty_cache();
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [this](StreamHandle one) { return stands_alone(one); }), 0);
  alternate(all, 1);
  EXPECT_LE(reserved(), 72) << "memory is shared anew";
}

TEST_F(HandedOver, OnRequestStreamsWaitHoweverOften) {
  allocator.set_options("stream_hand_over:wait");
  const std::vector<StreamHandle> all = streams(4);
  EXPECT_EQ(alternate(all, 50), 2000ms) << "one after the other";
  EXPECT_EQ(reserved(), 64);
  for (const StreamHandle stream : all) EXPECT_FALSE(stands_alone(stream));
  judge();
}

TEST_F(HandedOver, StreamsThatAreSeldomStalledGoOnSharing) {
  const std::vector<StreamHandle> all = streams(2);
  std::vector<void*> small;
  for (const StreamHandle stream : all) small.push_back(take(1, stream));
  for (int round = 0; round < 100; ++round)
    for (const StreamHandle stream : all) {
      void* block = take(64, stream);
      work(block, stream);
      give(block);
      for (int i = 0; i < 2; ++i) give(take(1, stream));
    }
  for (const StreamHandle stream : all) EXPECT_FALSE(stands_alone(stream));
  EXPECT_GE(waits(), 190U);
  EXPECT_LE(reserved(), 72);
  driver.run_until_idle();
  for (void* block : small) give(block);
  judge();
}

TEST_F(HandedOver, ManyRequestsBehindOneWaitAreOneStall) {
  const std::vector<StreamHandle> all = streams(2);
  for (int round = 0; round < 4; ++round)
    for (const StreamHandle stream : all) {
      std::vector<void*> blocks;
      for (int i = 0; i < 40; ++i) blocks.push_back(take(2, stream));
      for (void* block : blocks) work(block, stream, 1ms);
      for (void* block : blocks) give(block);
    }
  EXPECT_EQ(reserved(), 80);
  for (const StreamHandle stream : all) EXPECT_FALSE(stands_alone(stream));
  driver.run_until_idle();
  judge();
}

TEST_F(HandedOver, FiguresTellWhoHadWhoseBytes) {
  const std::vector<StreamHandle> all = streams(2);
  EXPECT_TRUE(allocator.hand_over_stats().empty());
  void* theirs = take(16, all[0]);
  work(theirs, all[0]);
  give(theirs);
  void* mine = take(16, all[1]);
  std::vector<HandOverStats> stats = allocator.hand_over_stats();
  ASSERT_EQ(stats.size(), 1U);
  EXPECT_EQ(stats[0].to, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(all[1])));
  EXPECT_EQ(stats[0].from, static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(all[0])));
  EXPECT_NE(stats[0].to_id, stats[0].from_id);
  EXPECT_EQ(stats[0].hand_overs, 1);
  EXPECT_EQ(stats[0].bytes, 16 * kSignedMega);
  EXPECT_EQ(stats[0].held_up, 1);
  EXPECT_EQ(waits(), 1U);
  EXPECT_THAT(allocator.memory_report(), ::testing::HasSubstr("16.00 MiB in 1 request, held up by work in 1.\n"));

  give(mine);
  void* again = take(16, all[0]);  // what stream 1 had is done with, but for stream 0's own
  driver.run_until_idle();
  give(again);
  give(take(16, all[1]));
  stats = allocator.hand_over_stats();
  ASSERT_EQ(stats.size(), 2U);
  const auto back =
      std::find_if(stats.begin(), stats.end(), [&](const HandOverStats& one) { return one.hand_overs == 2; });
  ASSERT_NE(back, stats.end());
  EXPECT_EQ(back->bytes, 32 * kSignedMega);
  EXPECT_EQ(back->held_up, 1) << "nothing was at work the second time";

  allocator.reset_accumulated_memory_stats();
  EXPECT_TRUE(allocator.hand_over_stats().empty());
  judge();
}

// What the stream queued after its free is not waited for, where an event from before tells the two apart.
TEST_F(HandedOver, OnlyTheLastUseIsWaitedFor) {
  const std::vector<StreamHandle> all = streams(3);
  void* first = take(16, all[0]);
  void* second = take(16, all[0]);
  work(first, all[0]);
  work(second, all[0]);
  give(first);
  give(second);
  void* early = take(16, all[1]);
  EXPECT_EQ(waits(), 1U);
  driver.run_until_idle();
  driver.occupy(all[0], 1s);
  void* late = take(16, all[2]);
  EXPECT_EQ(waits(), 1U) << "the last use is over, whatever the stream does now";
  const auto before = driver.virtual_time();
  work(late, all[2]);
  driver.run_until_idle(all[2]);
  EXPECT_EQ(driver.virtual_time() - before, 10ms);
  EXPECT_EQ(reserved(), 32);
  driver.run_until_idle();
  give(early);
  give(late);
  judge();
}

TEST_F(HandedOver, OnRequestBytesAreHadOfABusyStreamWhoseLastUseOfThemIsOver) {
  allocator.set_options("stream_hand_over:done");
  const std::vector<StreamHandle> all = streams(2);
  void* theirs = take(16, all[0]);
  work(theirs, all[0]);
  give(theirs);
  void* own = take(16, all[1]);
  EXPECT_EQ(reserved(), 32) << "the stream is at work on it";
  driver.run_until_idle();
  driver.occupy(all[0], 1s);
  void* more = take(16, all[1]);
  EXPECT_EQ(reserved(), 32);
  EXPECT_EQ(waits(), 0U);
  work(more, all[1]);
  driver.run_until_idle();
  give(own);
  give(more);
  judge();
}

// The bytes go from stream 0 to 1 and on to 2, which is behind 1's wait though 1 did nothing with them.
TEST_F(HandedOver, WhoHasBytesThatWereHandedOnIsBehindAllWhoUsedThem) {
  const std::vector<StreamHandle> all = streams(3);
  void* theirs = take(16, all[0]);
  give(theirs);
  give(take(16, all[1]));  // a mark on stream 0
  theirs = take(16, all[0]);
  work(theirs, all[0], 50ms);
  give(theirs);
  void* between = take(6, all[1]);  // takes whole handles, of which some stay free
  void* last = take(10, all[2]);
  work(last, all[2]);
  driver.run_until_idle();
  EXPECT_EQ(reserved(), 16);
  give(between);
  give(last);
  judge();
}

TEST_F(HandedOver, AFreeThatOthersPrecedeIsClaimedBehindTheirWork) {
  const std::vector<StreamHandle> all = streams(2);
  for (int step = 0; step < 8; ++step) {
    void* block = take(16, all[0]);
    work(block, all[0]);
    follow(all[1], all[0]);
    work(block, all[1]);
    allocator.record_stream(block, all[1]);
    give(block);
  }
  EXPECT_EQ(reserved(), 16) << "each step waits on the device for the one before";
  EXPECT_EQ(waits(), 7U);
  driver.run_until_idle();
  judge();
}

TEST_F(HandedOver, BuffersThatAreHandedOnComeToOverlap) {
  const std::vector<StreamHandle> all = streams(2);
  const auto step = [&] {
    void* block = take(16, all[0]);
    work(block, all[0]);
    follow(all[1], all[0]);
    allocator.record_stream(block, all[1]);
    work(block, all[1]);
    give(block);
  };
  for (int i = 0; i < 20; ++i) step();
  EXPECT_TRUE(stands_alone(all[0]));
  driver.run_until_idle();
  const std::uint64_t before = waits();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(waits(), before);
  EXPECT_GT(reserved(), 16);
  driver.run_until_idle();
  judge();
}

// Bytes of a block of stream 0 that stream 2 uses go to stream 1, which is to be behind both.
TEST_F(HandedOver, AFreeOfAnotherStreamIsClaimedBehindItsOwnerToo) {
  const std::vector<StreamHandle> all = streams(3);
  void* block = take(16, all[0]);
  follow(all[2], all[0]);
  work(block, all[2], 30ms);
  driver.occupy(all[0], 20ms);
  allocator.record_stream(block, all[2]);
  give(block);
  void* mine = take(16, all[1]);
  EXPECT_EQ(reserved(), 16);
  EXPECT_EQ(waits(), 2U);
  work(mine, all[1]);
  driver.run_until_idle();
  give(mine);
  EXPECT_EQ(allocator.memory_stats().active_bytes.all.current, 0);
  judge();
}

// Half a handle is of no use to a request for whole ones.
TEST_F(HandedOver, NothingIsClaimedThatDoesNotHelp) {
  const std::vector<StreamHandle> all = streams(3);
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(take(1, all[0]));
  follow(all[1], all[0]);
  for (std::size_t i = 1; i < blocks.size(); i += 2) {
    work(blocks[i], all[1]);
    allocator.record_stream(blocks[i], all[1]);
    give(blocks[i]);
  }
  driver.occupy(all[0], 1s);
  void* large = take(256, all[2]);
  EXPECT_EQ(waits(), 0U);
  give(blocks[0]);  // together with the second, a whole handle
  void* larger = take(258, all[2]);
  EXPECT_GE(waits(), 1U);
  driver.run_until_idle();
  give(large);
  give(larger);
  judge();
}

TEST_F(HandedOver, NothingIsClaimedWhereStreamsAreNotToWait) {
  for (const char* option : {"stream_hand_over:done", "stream_hand_over:never"}) {
    allocator.empty_cache();
    allocator.set_options(option);
    const std::vector<StreamHandle> all = streams(2);
    void* block = take(16, all[0]);
    work(block, all[1]);
    allocator.record_stream(block, all[1]);
    give(block);
    give(take(16, all[0]));
    EXPECT_EQ(reserved(), 32) << option;
    EXPECT_EQ(waits(), 0U) << option;
    driver.run_until_idle();
  }
  judge();
}

// Whatever is done when: what comes again goes where it was, without a call that manages memory.
TEST_F(HandedOver, PlacesDoNotDependOnWhenEventsAreDone) {
  allocator.set_options("stream_hand_over:wait");
  const std::vector<StreamHandle> all = streams(3);
  std::mt19937_64 when(20261123);
  const auto step = [&] {
    std::mt19937_64 what(7);
    std::vector<std::pair<void*, StreamHandle>> blocks;
    for (int i = 0; i < 200; ++i) {
      if (when() % 3 == 0) driver.run_until_idle(all[when() % 3]);
      if (blocks.size() == 12 || (!blocks.empty() && what() % 3 == 0)) {
        const std::size_t chosen = what() % blocks.size();
        const auto [block, owner] = blocks[chosen];
        const StreamHandle user = all[what() % 3];
        follow(user, owner);
        work(block, user, 1ms);
        allocator.record_stream(block, user);
        give(block);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
      } else {
        const StreamHandle stream = all[what() % 3];
        blocks.emplace_back(take(1 + what() % 20, stream), stream);
        work(blocks.back().first, stream, 1ms);
      }
    }
    for (const auto& [block, owner] : blocks) give(block);
  };
  for (int i = 0; i < 3; ++i) step();
  const std::uint64_t before = memory_calls();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(memory_calls(), before);
  driver.run_until_idle();
  judge();
}

}  // namespace
}  // namespace cistern
