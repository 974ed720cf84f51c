// Host memory is asked for, and given back, while the heap's lock is free: whoever looks at the heap at
// that moment is answered. Where it is not, these tests do not end.

#include <cistern/allocator.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "stats/history_entry.h"
#include "tests/byte_units.h"
#include "tests/history/host_memory_hook.h"

namespace cistern {
namespace {

// Another thread, which takes the heap's lock each time this one uses host memory.
class Onlooker {
 public:
  explicit Onlooker(CachingAllocator& allocator) : thread_([this, &allocator] { look_on(allocator); }) {
    self_ = this;
    testing_host::on_use = [] { self_->look(); };
  }
  ~Onlooker() {
    ends_ = true;
    look();
    thread_.join();
  }
  template <class Work>
  int looks_during(Work&& work) {
    const int before = answered_;
    testing_host::watches = true;
    work();
    testing_host::watches = false;
    return answered_ - before;
  }

 private:
  void look() {
    const int before = answered_;
    ++asked_;
    asked_.notify_one();
    answered_.wait(before);
  }
  void look_on(const CachingAllocator& allocator) {
    for (int seen = 0; !ends_; ++seen) {
      asked_.wait(seen);
      static_cast<void>(allocator.memory_stats());
      ++answered_;
      answered_.notify_one();
    }
  }

  static Onlooker* self_;
  std::atomic<int> asked_{0};
  std::atomic<int> answered_{0};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};
Onlooker* Onlooker::self_ = nullptr;

struct UnderTheHeapsLock : ::testing::Test {
  SimulatedDriver driver{SimulatedOptions{.capacity_bytes = 64 * kMega, .backing = Backing::none}};
  CachingAllocator allocator{{.driver = &driver.api()}};
};

TEST_F(UnderTheHeapsLock, ASnapshotAsksForNothing) {
  HistoryOptions options;
  options.max_entries = 5000;
  allocator.record_history(options);
  for (int i = 0; i < 50; ++i) {
    allocator.set_user_metadata("a step with a long name, number " + std::to_string(i));
    const TagScope tag("a tag with a long name, number " + std::to_string(i % 5));
    void* block = allocator.allocate(1000);
    allocator.annotate(block, "a note with a long text, number " + std::to_string(i));
    if (i % 2 == 0) allocator.deallocate(block);
  }
  Onlooker onlooker(allocator);
  Snapshot snapshot;
  EXPECT_GT(onlooker.looks_during([&] { snapshot = allocator.snapshot(); }), 100) << "what is described is on the host";
  EXPECT_EQ(snapshot.texts.size(), 100U);
}

TEST_F(UnderTheHeapsLock, AnUnlimitedHistoryGrowsForNothing) {
  HistoryOptions options;
  options.context = HistoryContext::none;
  allocator.record_history(options);
  allocator.deallocate(allocator.allocate(1000));
  Onlooker onlooker(allocator);
  constexpr std::size_t kChunks = 20;
  const int looks = onlooker.looks_during([&] {
    for (std::size_t i = 0; i < kChunks * HistoryChunk::kEntries / 2; ++i)
      allocator.deallocate(allocator.allocate(1000));
  });
  EXPECT_GE(looks, 19) << "a chunk each";
  EXPECT_LE(looks, 30) << "and nothing else";
  EXPECT_FALSE(allocator.snapshot().settings.trace_alloc_overflowed);
}

TEST_F(UnderTheHeapsLock, AChangeOfOptionsKeepsNothingBack) {
  HistoryOptions options;
  options.context = HistoryContext::none;
  options.max_entries = 5000;
  allocator.record_history(options);
  for (int i = 0; i < 4000; ++i) allocator.deallocate(allocator.allocate(1000));
  Onlooker onlooker(allocator);
  for (const std::size_t entries : {6000, 100, 100, 20000}) {
    options.max_entries = entries;
    options.clear_history = entries == 100;
    EXPECT_GT(onlooker.looks_during([&] { allocator.record_history(options); }), 2) << entries;
  }
  options.enabled = HistoryEnabled::none;
  EXPECT_GT(onlooker.looks_during([&] { allocator.record_history(options); }), 2);
}

}  // namespace
}  // namespace cistern
