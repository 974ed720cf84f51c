// Streams whose steps vary, each at a time of its own: what they take of each other, and that they part.
#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "allocator/device_allocator.h"
#include "tests/allocator/heap_of_streams.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class PartedStreams : public ::testing::Test {
 protected:
  static constexpr int kOperations = 400'000;
  static constexpr int kLook = 25'000;  // operations until somebody looks

  PartedStreams() {
    for (std::size_t& bytes : sizes_) {
      bytes = 4 * kKibi << random_() % 13;
      bytes += 512 * (random_() % 1000);
    }
  }
  ~PartedStreams() override { allocator_.check(); }

  // A step takes blocks and frees them from the last to the first; each is of a length of its own.
  struct Program {
    StreamHandle stream;
    std::vector<void*> kept = {};
    double length = 0;
    bool goes_back = false;
  };
  void advance(Program& program) {
    if (program.goes_back) {
      allocator_.deallocate(program.kept.back());
      program.kept.pop_back();
      program.goes_back = !program.kept.empty();
      return;
    }
    const std::size_t at = program.kept.size();
    if (at == 0) program.length = 0.25 + 0.75 * static_cast<double>(random_() % 4096) / 4096;
    const double bytes = program.length * static_cast<double>(sizes_[at]);
    program.kept.push_back(allocator_.allocate(1 + static_cast<std::size_t>(bytes), program.stream));
    program.goes_back = at + 1 == sizes_.size();
  }
  void side_by_side(int operations) {
    for (int i = 0; i < operations; ++i) advance(programs_[random_() % programs_.size()]);
  }
  void finish() {
    for (Program& program : programs_)
      while (!program.kept.empty()) advance(program);
  }
  void in_turn(int operations) {
    std::size_t turn = 0;
    for (int i = 0; i < operations; ++i) {
      advance(programs_[turn]);
      if (programs_[turn].kept.empty()) turn = (turn + 1) % programs_.size();
    }
  }
  [[nodiscard]] std::int64_t hand_overs() {
    std::int64_t all = 0;
    for (const HandOverStats& stats : allocator_.hand_over_stats()) all += stats.hand_overs;
    return all;
  }
  [[nodiscard]] bool are_apart() {
    std::size_t alone = 0;
    for (const StreamStats& stats : allocator_.stream_stats())
      for (const Program& program : programs_)
        alone += stats.stands_alone && stats.stream == reinterpret_cast<std::intptr_t>(program.stream) ? 1 : 0;
    EXPECT_TRUE(alone == 0 || alone == programs_.size());
    return alone != 0;
  }
  void part() {
    for (int i = 0; i < kOperations && !are_apart(); i += kLook) side_by_side(kLook);
    EXPECT_TRUE(are_apart());
  }
  [[nodiscard]] std::int64_t reserved() { return allocator_.memory_stats().reserved_bytes.all.current; }
  [[nodiscard]] std::int64_t most_live() { return allocator_.memory_stats().allocated_bytes.all.peak; }

  std::mt19937_64 random_{20261128};
  std::array<std::size_t, 40> sizes_{};
  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  const DriverApi api_ = driver_.api();
  CachingAllocator allocator_{{.driver = &api_, .options = AllocatorOptions::parse("oom_dump:off,policy:paged")}};
  std::array<Program, 2> programs_{{{driver_.create_stream()}, {driver_.create_stream()}}};
};

TEST_F(PartedStreams, ThoseThatSaveNothingBySharingPart) {
  side_by_side(2 * kLook);
  const std::int64_t before = hand_overs();
  side_by_side(kLook);
  const std::int64_t while_sharing = hand_overs() - before;
  EXPECT_GT(while_sharing, 500);
  part();
  const std::int64_t reserved_when_parted = reserved();
  side_by_side(2 * kLook);
  const std::int64_t before_look = hand_overs();
  side_by_side(kLook);
  EXPECT_LT(hand_overs() - before_look, while_sharing / 20);
  EXPECT_TRUE(are_apart());
  constexpr std::int64_t kPage = 2 * kSignedMega;
  EXPECT_LE(reserved(), std::max(reserved_when_parted, most_live() / kPage * 9 / 8 * kPage) + 2 * kPage);
}

// Alone they would need twice as much.
TEST_F(PartedStreams, ThoseThatTakeTurnsDoNot) {
  in_turn(kOperations);
  EXPECT_GT(hand_overs(), 1000);
  EXPECT_FALSE(are_apart());
  EXPECT_LE(reserved(), most_live() * 3 / 2);
}

// What they had apart does not keep those from sharing that take turns later.
TEST_F(PartedStreams, ThoseThatCameToTakeTurnsHaveOthersBytesBeforeMoreIsCreated) {
  part();
  for (std::size_t& bytes : sizes_) bytes *= 3;
  in_turn(kLook);
  EXPECT_LE(reserved(), most_live() + most_live() / 4);
}

TEST_F(PartedStreams, EmptyingTheCacheBringsThemTogether) {
  part();
  allocator_.empty_cache();
  EXPECT_FALSE(are_apart());
  const std::int64_t before = hand_overs();
  side_by_side(kLook);
  EXPECT_GT(hand_overs() - before, 200);
}

// It was stalled too often for that, and they are not.
TEST_F(PartedStreams, OneThatStandsAloneHasNoneOfTheirBytes) {
  const StreamHandle first = driver_.create_stream();
  const StreamHandle alone = driver_.create_stream();
  for (int round = 0; round < 20; ++round)
    for (const StreamHandle stream : {first, alone}) {
      void* const block = allocator_.allocate(64 * kMega, stream);
      driver_.launch(stream, {}, {{block, 1024}}, std::chrono::milliseconds(10), [] {});
      allocator_.deallocate(block);
    }
  driver_.run_until_idle();
  std::array<void*, 2> kept = {allocator_.allocate(64 * kMega, first), allocator_.allocate(64 * kMega, alone)};
  part();
  finish();
  const std::int64_t before = reserved();
  void* const block = allocator_.allocate(512 * kMega, alone);
  EXPECT_GE(reserved() - before, 512 * kSignedMega);
  for (void* const one : {block, kept[0], kept[1]}) allocator_.deallocate(one);
}

TEST_F(PartedStreams, WhereALimitRefusesMoreTheyHaveOthersBytes) {
  part();
  const double all = static_cast<double>(4096 * kMega);
  allocator_.set_memory_fraction(static_cast<double>(reserved()) / all);
  EXPECT_NO_THROW(side_by_side(kLook));
  EXPECT_TRUE(are_apart());
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0);
}

// Where they cannot be had more is created, at once: the streams stay apart.
TEST_F(PartedStreams, ACapturedStreamHasMemoryOfItsOwn) {
  part();
  finish();
  allocator_.deallocate(allocator_.allocate(static_cast<std::size_t>(most_live()), driver_.create_stream()));
  const StreamHandle captured = driver_.create_stream();
  ASSERT_EQ(api_.stream_begin_capture(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  std::array<void*, 4> blocks{};
  const std::int64_t before = reserved();
  for (void*& block : blocks) block = allocator_.allocate(8 * kMega, captured);
  EXPECT_EQ(reserved() - before, 4 * 8 * kSignedMega);
  EXPECT_TRUE(are_apart());
  for (void* const block : blocks) allocator_.deallocate(block);
  CUgraph graph = nullptr;
  ASSERT_EQ(api_.stream_end_capture(captured, &graph), CUDA_SUCCESS);
  ASSERT_EQ(api_.graph_destroy(graph), CUDA_SUCCESS);
}

// What waits for other streams is had before more is created, too.
TEST_F(PartedStreams, WhereThereIsEnoughPendingFreesAreClaimed) {
  part();
  finish();
  const StreamHandle reader = driver_.create_stream();
  const StreamHandle taker = driver_.create_stream();
  void* const all = allocator_.allocate(static_cast<std::size_t>(most_live()), programs_[0].stream);
  allocator_.record_stream(all, reader);
  driver_.launch(reader, {}, {{all, 1024}}, std::chrono::milliseconds(10), [] {});
  allocator_.deallocate(all);
  const std::int64_t before = reserved();
  void* const block = allocator_.allocate(static_cast<std::size_t>(most_live()), taker);
  EXPECT_LE(reserved() - before, most_live() / 8);
  EXPECT_TRUE(are_apart());
  allocator_.deallocate(block);
}

TEST_F(PartedStreams, AnOptionThatForbidsItBringsThemTogether) {
  part();
  for (const char* const option : {"stream_hand_over:wait", "stream_hand_over:fair"}) {
    allocator_.set_options(option);
    EXPECT_FALSE(are_apart()) << option;
  }
}

// Many streams that one thread serves in turn, two blocks each time, which is all that ever lives: alone each needs a
// page, and together they need one.
class PartedTurns : public ::testing::Test {
 protected:
  static constexpr std::size_t kPage = 2 * kMega;
  static constexpr std::size_t kDevicePages = 40 * kKibi;
  static constexpr int kTurns = 10'000;  // two rounds of requests until streams may part, and more

  ~PartedTurns() override { allocator_.check(); }

  void make_streams(std::size_t count) {
    while (streams_.size() < count) streams_.push_back(driver_.create_stream());
  }
  void turn(int turns) {
    for (int i = 0; i < turns; ++i) {
      const StreamHandle stream = streams_[static_cast<std::size_t>(i) % streams_.size()];
      void* const first = allocator_.allocate(4 * kKibi, stream);
      void* const second = allocator_.allocate(8 * kKibi, stream);
      allocator_.deallocate(first);
      allocator_.deallocate(second);
    }
  }
  [[nodiscard]] bool are_apart() {
    const std::vector<StreamStats> all = allocator_.stream_stats();
    return std::any_of(all.begin(), all.end(), [](const StreamStats& stats) { return stats.stands_alone; });
  }
  [[nodiscard]] std::int64_t hand_overs() {
    std::int64_t all = 0;
    for (const HandOverStats& stats : allocator_.hand_over_stats()) all += stats.hand_overs;
    return all;
  }
  [[nodiscard]] std::uint64_t calls() {
    std::uint64_t all = 0;
    for (const auto& [name, count] : driver_.calls_by_name())
      if (name.starts_with("cuMem") || name.starts_with("cuEvent")) all += count;
    return all;
  }
  // No more hand-overs, and no calls.
  void expect_rest() {
    const std::int64_t before = hand_overs();
    const std::uint64_t calls_before = calls();
    turn(1000);
    EXPECT_EQ(hand_overs(), before);
    EXPECT_EQ(calls(), calls_before);
  }
  [[nodiscard]] std::size_t pages() {
    return static_cast<std::size_t>(allocator_.memory_stats().reserved_bytes.all.current) / kPage;
  }

  SimulatedDriver driver_{{.capacity_bytes = kDevicePages * kPage, .backing = Backing::none}};
  CachingAllocator allocator_{
      {.driver = &driver_.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:paged")}};
  std::vector<StreamHandle> streams_;
};

// Nothing is created ahead for them, either.
TEST_F(PartedTurns, HaveAPageEachWhereThatIsLittle) {
  make_streams(100);
  turn(kTurns);
  EXPECT_TRUE(are_apart());
  expect_rest();
  EXPECT_GT(pages(), 90U);
  EXPECT_LE(pages(), 100U);
}

// Whatever else there is.
TEST_F(PartedTurns, HaveAPageEachBesideMuchMemory) {
  constexpr std::size_t kModel = 1000;
  void* const model = allocator_.allocate(kModel * kPage, driver_.create_stream());
  make_streams(100);
  turn(kTurns);
  EXPECT_TRUE(are_apart());
  expect_rest();
  EXPECT_GT(pages(), kModel + 80);
  EXPECT_LE(pages(), kModel + 104) << "some came ahead while they shared";
  allocator_.deallocate(model);
}

TEST_F(PartedTurns, ShareAgainWhereALimitComesToLeaveLess) {
  make_streams(100);
  turn(kTurns);
  ASSERT_TRUE(are_apart());
  for (const double pages_left : {400.0, 40.0, 4.0}) {
    allocator_.set_memory_fraction(pages_left / kDevicePages);
    EXPECT_NO_THROW(turn(1000));
  }
  allocator_.empty_cache();
  EXPECT_NO_THROW(turn(1000));
  EXPECT_LE(pages(), 4U);
  EXPECT_EQ(allocator_.memory_stats().num_alloc_retries, 0);
}

TEST_F(PartedTurns, ThatMayNotBeApartAreNotOnceTheyMay) {
  make_streams(100);
  for (const char* const option : {"stream_hand_over:wait", "stream_hand_over:done"}) {
    allocator_.set_options(option);
    // A round that would be the first apart: what they have of each other's would bring them together in the end.
    turn(kTurns / 2);
    EXPECT_FALSE(are_apart()) << option;
  }
  allocator_.set_options("stream_hand_over:fair");
  EXPECT_FALSE(are_apart());
}

TEST_F(PartedTurns, ShareWhereThatIsMore) {
  make_streams(kDevicePages / 256 + 20);
  turn(3 * kTurns);
  EXPECT_FALSE(are_apart());
  EXPECT_LE(pages(), 2U);
}

TEST_F(PartedTurns, ShareWhereOfTheLimitThatIsMore) {
  allocator_.set_memory_fraction(0.25);
  make_streams(kDevicePages / 256 / 4 + 20);
  turn(kTurns);
  EXPECT_FALSE(are_apart());
  allocator_.set_memory_fraction(1);
  turn(kTurns);
  EXPECT_TRUE(are_apart());
}

struct HeapWithPeaks : DeviceAllocator {
  using DeviceAllocator::DeviceAllocator;
  // Pages for what streams came up to.
  [[nodiscard]] std::int64_t peaks() {
    const Section section(*this);
    return paged_->placement.pages_of_peaks();
  }
};

class PartedStreamsPeaks : public HeapOfStreams<HeapWithPeaks> {
 protected:
  PartedStreamsPeaks() : HeapOfStreams("oom_dump:off,policy:paged", {}) {}
};

TEST_F(PartedStreamsPeaks, AreOfWhatCameSinceTheCacheWasEmptied) {
  const StreamIdentity one = make_stream();
  const StreamIdentity other = make_stream();
  for (const StreamIdentity& stream : {one, other}) {
    static_cast<void>(take(512, stream));
    give(take(80 * kMega, stream));
  }
  EXPECT_EQ(heap_.peaks(), 2 * 41) << "each at its own time";
  heap_.empty_cache();
  EXPECT_EQ(heap_.peaks(), 2);
}

}  // namespace
}  // namespace cistern
