// Streams of one thread that take turns near the peaks, and so come to share a ledger (SharedCounts): the figures stay
// those of one counter that sees everything.
#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <cistern/stats.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/shared_counts.h"
#include "runtime/stream_access.h"
#include "tests/byte_units.h"
#include "tests/moved_stat.h"

namespace cistern {
namespace {

TEST(SharedCountsTest, TheyPartAfterAWhileAndStayLongerTheNextTime) {
  SharedCounts counts;
  EXPECT_TRUE(counts.is_over());
  for (std::uint64_t stay = SharedCounts::kFirstStay; stay <= 4 * SharedCounts::kFirstStay; stay *= 2) {
    counts.begin(ThreadMark::of_this_thread());
    std::uint64_t requests = 0;
    while (counts.takes_request()) ++requests;
    EXPECT_EQ(requests, stay);
    EXPECT_TRUE(counts.is_over());
  }
}

TEST(SharedCountsTest, TheyAreOfOneThread) {
  SharedCounts counts;
  const ThreadMark other;
  counts.begin(&other);
  EXPECT_FALSE(counts.takes_request());
  EXPECT_FALSE(counts.is_over());
  EXPECT_TRUE(counts.is_of(&other));
}

TEST(SharedCountsTest, TheyGiveWayAndStayForHalfAsLongAfterwards) {
  SharedCounts counts;
  const auto stay = [&] {
    std::uint64_t requests = 0;
    while (counts.takes_request()) ++requests;
    return requests;
  };
  for (int times = 0; times < 2; ++times) {
    counts.begin(ThreadMark::of_this_thread());
    static_cast<void>(stay());
  }
  counts.begin(ThreadMark::of_this_thread());
  int times = 0;
  for (; !counts.is_over(); ++times) counts.give_way();
  EXPECT_LT(times, 20);
  counts.begin(ThreadMark::of_this_thread());
  EXPECT_EQ(stay(), 2 * SharedCounts::kFirstStay);
  // Ended by somebody else.
  counts.begin(ThreadMark::of_this_thread());
  counts.begin(ThreadMark::of_this_thread());
  EXPECT_EQ(stay(), 2 * SharedCounts::kFirstStay);
}

// One counter that is told each step.
struct Plain {
  Stat blocks;
  Stat requested;
  std::map<void*, std::pair<StreamHandle, std::int64_t>> live;
  void came(void* block, StreamHandle stream, std::int64_t bytes) {
    EXPECT_TRUE(live.emplace(block, std::pair(stream, bytes)).second) << "handed out twice";
    move(blocks, 1);
    move(requested, bytes);
  }
  void went(void* block) {
    move(blocks, -1);
    move(requested, -live.at(block).second);
    live.erase(block);
  }
};

class StreamsInTurnTest : public ::testing::TestWithParam<Policy> {
 protected:
  StreamsInTurnTest() {
    for (StreamHandle& stream : streams_) stream = driver_.create_stream();
  }
  void* allocate(StreamHandle stream, std::size_t bytes) {
    void* const block = allocator_.allocate(bytes, stream);
    plain_.came(block, stream, static_cast<std::int64_t>(bytes));
    return block;
  }
  void free(void* block) {
    plain_.went(block);
    allocator_.deallocate(block);
  }
  void turn(StreamHandle stream) {
    void* const first = allocate(stream, 512 * (1 + random_() % 16));
    void* const second = allocate(stream, 512 * (1 + random_() % 16));
    free(random_() % 2 == 0 ? first : second);
    free(plain_.live.contains(first) ? first : second);
    for (int times = 0; times < 2; ++times) free(allocate(stream, kKibi));
  }
  // Near the peaks, which are what a turn needs.
  void turns(int count) {
    for (int i = 0; i < count; ++i)
      for (const StreamHandle stream : streams_) turn(stream);
  }
  void reset_peaks() {
    allocator_.reset_peak_memory_stats();
    for (Stat* stat : {&plain_.blocks, &plain_.requested}) stat->peak = stat->current;
  }
  void compare() const {
    const MemoryStats stats = allocator_.memory_stats();
    EXPECT_EQ(stats.allocation.all, plain_.blocks);
    EXPECT_EQ(stats.active.all, plain_.blocks);
    EXPECT_EQ(stats.requested_bytes.all, plain_.requested);
    allocator_.check();  // what each stream has among it
  }
  [[nodiscard]] AllocatorOptions options() const {
    return AllocatorOptions::parse(std::string("oom_dump:off,policy:") + to_string(GetParam()));
  }

  SimulatedDriver driver_{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  CachingAllocator allocator_{{.driver = &driver_.api(), .options = options()}};
  std::array<StreamHandle, 4> streams_{};
  Plain plain_;
  std::mt19937_64 random_{11};
};

TEST_P(StreamsInTurnTest, FiguresAreThoseOfOneCounter) {
  for (int round = 0; round < 40; ++round) {
    turns(50);
    compare();
    if (round % 8 == 7) reset_peaks();
  }
}

// Up to a peak that both reach together alone.
TEST_P(StreamsInTurnTest, APeakThatTwoReachTogetherIsSeen) {
  for (std::size_t blocks = 1; blocks < 40; ++blocks) {
    turns(20);
    reset_peaks();
    std::vector<void*> held;
    for (std::size_t i = 0; i < blocks; ++i) held.push_back(allocate(streams_[i % 2], kKibi));
    for (void* const block : held) free(block);
    turns(20);
    compare();
  }
}

TEST_P(StreamsInTurnTest, BlocksThatWaitForOthersAreCounted) {
  turns(100);
  for (int i = 0; i < 200; ++i) {
    for (const StreamHandle stream : streams_) {
      void* const block = allocate(stream, 2 * kKibi);
      turn(stream);
      allocator_.record_stream(block, streams_[i % 4]);
      free(block);
    }
    // The next request completes what waits.
    void* const last = allocate(streams_[0], kKibi);
    compare();
    free(last);
  }
}

TEST_P(StreamsInTurnTest, TheyPartAndShareAgain) {
  constexpr int kTurns = static_cast<int>(3 * SharedCounts::kFirstStay / (2 * 4));
  for (int i = 0; i < kTurns; ++i) {
    for (const StreamHandle stream : streams_) turn(stream);
    if (i % 101 == 0) compare();
  }
  compare();
}

// What one thread began another goes on with, and each with streams of the other.
TEST_P(StreamsInTurnTest, ThreadsTakeStreamsOver) {
  turns(100);
  std::thread([&] { turns(100); }).join();
  compare();
  turns(100);
  compare();
  for (int round = 0; round < 4; ++round) {
    const auto work = [&](std::size_t begin) {
      for (int i = 0; i < 500; ++i)
        for (std::size_t stream = begin; stream < begin + 2; ++stream) {
          void* const first = allocator_.allocate(kKibi, streams_[stream]);
          void* const second = allocator_.allocate(2 * kKibi, streams_[stream]);
          allocator_.deallocate(first);
          allocator_.deallocate(second);
        }
    };
    std::thread other([&] { work(round % 2 == 0 ? 0 : 2); });
    work(round % 2 == 0 ? 2 : 0);
    other.join();
    allocator_.check();
  }
  const MemoryStats stats = allocator_.memory_stats();
  EXPECT_EQ(stats.allocation.all.current, 0);
  EXPECT_EQ(stats.allocation.all.allocated, plain_.blocks.allocated + std::int64_t{4} * 2 * 500 * 2 * 2);
  EXPECT_GE(stats.allocation.all.peak, 2);
  EXPECT_LE(stats.allocation.all.peak, 4);
}

// A stream's blocks are freed by a thread that does not share.
TEST_P(StreamsInTurnTest, AnotherThreadFrees) {
  for (int round = 0; round < 50; ++round) {
    turns(20);
    std::vector<void*> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(allocate(streams_[static_cast<std::size_t>(i % 4)], kKibi));
    std::thread([&] {
      for (void* const block : blocks) free(block);
    }).join();
    compare();
  }
}

TEST_P(StreamsInTurnTest, StreamsThatSleepWhileTheyShareLeaveTheirFigures) {
  turns(200);
  void* const kept = allocate(streams_[1], 3 * kKibi);
  std::vector<StreamHandle> others;
  for (int i = 0; i < 40; ++i) others.push_back(driver_.create_stream());
  for (int times = 0; times < 3; ++times)
    for (const StreamHandle stream : others) turn(stream);
  compare();
  turns(200);
  free(kept);
  compare();
}

// Steps that come again would be counted later, and what the other stream comes to with them is not seen.
TEST_P(StreamsInTurnTest, NoStepsAreFollowedMeanwhile) {
  const auto turns_and = [&](std::size_t more) {
    std::vector<void*> held = {allocate(streams_[0], kKibi), allocate(streams_[1], kKibi),
                               allocate(streams_[1], 2 * kKibi)};
    for (std::size_t i = 0; i < more; ++i) held.push_back(allocate(streams_[1], 512));
    for (void* const block : held) free(block);
  };
  for (int i = 0; i < 4000; ++i) turns_and(0);
  turns_and(1);
  compare();
}

// The others are gone, and what it has still counts where all of them counted; another thread may ask for it.
TEST_P(StreamsInTurnTest, TheOneThatIsLeftFollowsStepsAndCountsThem) {
  turns(200);
  for (std::size_t i = 1; i < streams_.size(); ++i) allocator_.release_stream(streams_[i]);
  for (int step = 0; step < 300; ++step) {
    std::vector<void*> held;
    for (std::size_t i = 0; i < 20; ++i) held.push_back(allocate(streams_[0], 512 * (i % 3 + 1)));
    for (std::size_t i = 0; i < 20; ++i) free(held[i * 7 % 20]);
    if (step % 100 == 0) compare();
  }
  void* const kept = allocate(streams_[0], 512);
  std::thread([this] { compare(); }).join();
  free(kept);
  compare();
}

INSTANTIATE_TEST_SUITE_P(, StreamsInTurnTest, ::testing::Values(Policy::classic, Policy::expandable, Policy::paged),
                         [](const auto& parameter) { return std::string(to_string(parameter.param)); });

// A driver that hears of each free wants to hear of it on its thread: the ledger is shared by two threads then.
TEST(StreamsInTurnOfThreadsTest, AnotherThreadFreesMeanwhile) {
  SimulatedDriver driver{{.capacity_bytes = 4096 * kMega, .backing = Backing::none}};
  DriverApi api = driver.api();
  api.note_free = {nullptr, [](void* /*self*/, CUdeviceptr, std::size_t, CUstream, const void*) {}};
  CachingAllocator allocator{{.driver = &api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")}};
  const std::array<StreamHandle, 2> streams = {driver.create_stream(), driver.create_stream()};
  // Fewer requests than they share for.
  constexpr std::int64_t kBlocks = 1000;
  constexpr std::int64_t kRounds = 8;
  constexpr std::int64_t kTurns = 200;
  std::vector<void*> blocks;
  for (std::int64_t i = 0; i < kBlocks; ++i) blocks.push_back(allocator.allocate(kKibi, streams[0]));
  for (void* const block : blocks) allocator.deallocate(block);
  const auto turns = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      for (const StreamHandle stream : streams) {
        void* const first = allocator.allocate(kKibi, stream);
        allocator.deallocate(allocator.allocate(2 * kKibi, stream));
        allocator.deallocate(first);
      }
  };
  // Little is below the peak, so they share; then there is a lot.
  allocator.reset_peak_memory_stats();
  turns(100);
  for (std::int64_t round = 0; round < kRounds; ++round) {
    for (void*& block : blocks) block = allocator.allocate(kKibi, streams[0]);
    std::thread other([&] {
      for (void* const block : blocks) allocator.deallocate(block);
    });
    turns(kTurns);
    other.join();
    allocator.check();
  }
  const MemoryStats stats = allocator.memory_stats();
  EXPECT_EQ(stats.allocation.all.current, 0);
  EXPECT_EQ(stats.requested_bytes.all.current, 0);
  EXPECT_EQ(stats.allocation.all.allocated, (1 + kRounds) * kBlocks + (100 + kRounds * kTurns) * 4);
}

}  // namespace
}  // namespace cistern
