// Snapshots and changes of options while other threads allocate and free.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/history/trace_replay.h"
#include "tests/property.h"

namespace cistern {
namespace {

constexpr std::size_t kMega = 1024 * 1024;

// Threads that allocate and free. However the machine divides its time, they do no more than they are
// allowed: a history that is read from its beginning must have an end.
class Load {
 public:
  Load(CachingAllocator& allocator, StreamHandle other, std::uint64_t allowed) : allowed_(allowed) {
    for (std::uint32_t seed = 1; seed <= 3; ++seed)
      threads_.emplace_back([this, &allocator, other, seed] { run(allocator, other, seed); });
  }
  ~Load() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  // Allows some more steps, and waits until some were done: the rest are made meanwhile.
  void go_on() {
    const std::uint64_t before = steps_;
    allowed_ = before + 400;
    while (steps_ < before + 50) std::this_thread::yield();
  }

 private:
  void run(CachingAllocator& allocator, StreamHandle other, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<void*> live;
    while (!stop_) {
      if (steps_ >= allowed_) {
        std::this_thread::yield();
        continue;
      }
      ++steps_;
      try {
        const auto choice = random() % 64;
        if (choice == 0) {
          allocator.empty_cache();
        } else if (choice < 34 && live.size() < 40) {
          live.push_back(allocator.allocate(1 + random() % (choice % 8 == 0 ? 12 * kMega : 4000)));
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          if (choice % 4 == 0) allocator.record_stream(live.back(), other);
          allocator.deallocate(live.back());
          live.pop_back();
        }
      } catch (const OutOfMemoryError&) {
      }
    }
    for (void* block : live) allocator.deallocate(block);
  }

  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> allowed_;
  std::vector<std::thread> threads_;
};

void expect_every_snapshot_to_be_one_moment(const char* options) {
  const long rounds = scaled(50);
  for (long round = 0; round < rounds; ++round) {
    SimulatedDriver driver({.capacity_bytes = 512 * kMega, .backing = Backing::none});
    CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse(options)});
    allocator.record_history({.context = HistoryContext::none});
    Load load(allocator, driver.create_stream(), 0);
    for (int i = 0; i < 20; ++i) {
      load.go_on();
      const Snapshot snapshot = allocator.snapshot();
      TraceReplay replay(snapshot.device_traces.at(0));
      ASSERT_EQ(replay.difference_from(snapshot), "") << "round " << round << ", snapshot " << i;
      std::int64_t reserved = 0;
      std::int64_t active = 0;
      for (const SegmentInfo& segment : snapshot.segments) {
        reserved += segment.total_size;
        active += segment.active_size;
      }
      ASSERT_EQ(reserved, snapshot.device_stats.at(0).reserved_bytes.all.current);
      ASSERT_EQ(active, snapshot.device_stats[0].active_bytes.all.current);
    }
  }
}

TEST(HistoryUnderLoad, EverySnapshotIsOneMoment) { expect_every_snapshot_to_be_one_moment("oom_dump:off"); }

TEST(HistoryUnderLoad, EverySnapshotOfExpandableSegmentsIsOneMoment) {
  expect_every_snapshot_to_be_one_moment("oom_dump:off,policy:expandable");
}

TEST(HistoryUnderLoad, OptionsChangeWithoutHarm) {
  SimulatedDriver driver({.capacity_bytes = 512 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off")});
  {
    const Load load(allocator, driver.create_stream(), ~std::uint64_t{0});
    std::mt19937 random(20261121);
    const long changes = scaled(2000);
    for (long i = 0; i < changes; ++i) {
      HistoryOptions options;
      options.enabled = static_cast<HistoryEnabled>(random() % 3);
      options.context = static_cast<HistoryContext>(random() % 4);
      options.max_entries = 1 + random() % 3000;
      options.max_frames = 1 + random() % 128;
      options.max_stack_bytes = random() % 4 == 0 ? 300 : 1 << 20;
      options.clear_history = random() % 2 == 0;
      if (random() % 4 == 0) options.skip_actions = {TraceAction::free_requested};
      allocator.record_history(options);
      allocator.set_user_metadata("change " + std::to_string(i % 7));
      if (i % 8 == 0) {
        const Snapshot snapshot = allocator.snapshot();
        for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
          ASSERT_LT(entry.stack, static_cast<StackIndex>(snapshot.stacks.size()));
          ASSERT_LT(entry.user_metadata, static_cast<std::int32_t>(snapshot.texts.size()));
          ASSERT_LE(static_cast<int>(entry.action), static_cast<int>(TraceAction::annotate));
        }
      }
    }
  }
  allocator.record_history({.enabled = HistoryEnabled::none});
  EXPECT_EQ(allocator.history_info().entries, 0U);
}

}  // namespace
}  // namespace cistern
