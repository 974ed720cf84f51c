// With no host memory left the history never fails a request; and on a hit it asks for none.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>
#include <string>

#include "stats/gzip_output.h"
#include "stats/history.h"

namespace {

constexpr long kPlenty = 1L << 60;
std::atomic<long> left{kPlenty};  // requests that are served
std::atomic<std::uint64_t> requests{0};
std::atomic<long> until_failure{kPlenty};  // the request of that number is refused, and no other

// Out of line, all of these: else the compiler sees new meet free.
[[gnu::noinline]] void* request(std::size_t bytes) {
  ++requests;
  if (left.fetch_sub(1) <= 0 || until_failure.fetch_sub(1) == 1) return nullptr;
  return std::malloc(bytes);
}

[[gnu::noinline]] void give_back(void* memory) { std::free(memory); }

struct MemoryGone {
  explicit MemoryGone(long after = 0) { left = after; }
  ~MemoryGone() { left = kPlenty; }
};

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* memory = request(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return request(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return request(bytes); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }

namespace cistern {
namespace {

constexpr std::size_t kMega = 1024 * 1024;

TEST(HistoryWithoutMemory, AnUnlimitedRingStaysAsLargeAsItIs) {
  DeviceHistory history;
  HistoryOptions options;
  options.max_entries = kUnlimitedEntries;
  history.set_options(HistoryOptions(options), HistoryRing(history.capacity_for(options)));
  TracePoint at;
  {
    const MemoryGone gone;
    for (at.size = 0; at.size < 20000; ++at.size) history.add(TraceAction::alloc, at);
  }
  // Its first chunk holds 8,192.
  DeviceHistory::Copy copy;
  history.copy_to(copy);
  ASSERT_EQ(copy.entries.size(), 8192U);
  EXPECT_EQ(copy.entries.front().size, 20000 - 8192);
  EXPECT_EQ(copy.entries.back().size, 19999);
  EXPECT_TRUE(copy.overflowed);
  EXPECT_EQ(history.info().lost, 0U);
}

TEST(HistoryWithoutMemory, ANewStackIsLeftOutAndCounted) {
  DeviceHistory history;
  HistoryOptions options;
  history.set_options(HistoryOptions(options), HistoryRing(history.capacity_for(options)));
  const std::uintptr_t frame = 1;
  CapturedStack stack;
  stack.frames = &frame;
  stack.depth = 1;
  stack.hash = hash_of(&frame, 1);
  {
    const MemoryGone gone;
    EXPECT_EQ(history.intern(stack), kNoStackId);
  }
  EXPECT_EQ(history.info().stacks_lost, 1U);
  EXPECT_NE(history.intern(stack), kNoStackId);
}

TEST(HistoryWithoutMemory, RequestsAreServedAndRecorded) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  allocator.record_history({});
  allocator.deallocate(allocator.allocate(1000));
  {
    const MemoryGone gone;
    for (int i = 0; i < 10000; ++i) allocator.deallocate(allocator.allocate(1000));
  }
  EXPECT_EQ(allocator.memory_stats().allocation.all.allocated, 10001);
  EXPECT_EQ(allocator.history_info().recorded, 1 + 3 * 10001U);
}

TEST(HistoryWithoutMemory, OptionsThatNeedSomeAreRefusedAndNothingIsChanged) {
  SimulatedDriver driver({.devices = 2, .capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  static_cast<void>(allocator.allocate(1000));
  static_cast<void>(allocator.allocate(1000, nullptr, 1));
  HistoryOptions options;
  options.clear_history = true;
  const auto try_after = [&](long served) {
    const MemoryGone gone(served);
    try {
      allocator.record_history(options);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  };
  long served = 0;
  for (; !try_after(served); ++served) {
    ASSERT_EQ(allocator.history_options().max_entries, kDefaultHistoryEntries);
    ASSERT_EQ(allocator.history_info(0).recorded, 2U) << served;
    ASSERT_EQ(allocator.history_info(1).recorded, 2U) << served;
  }
  EXPECT_GT(served, 3) << "each device needs some";
  EXPECT_EQ(allocator.history_info(0).recorded + allocator.history_info(1).recorded, 0U);
}

TEST(CompressedTextWithoutMemory, IsWholeOrRefused) {
  const std::string text(5 * kMega, 'x');
  const auto compressed = [&text] {
    std::ostringstream out;
    write_gzip(out, [&text](std::ostream& into) {
      for (std::size_t at = 0; at < text.size(); at += kMega / 2) into.write(text.data() + at, kMega / 2);
    });
    if (!out) throw std::bad_alloc();  // its own memory
    return out.str();
  };
  const std::string whole = compressed();
  int refused = 0;
  for (long failing = 1;; ++failing) {
    until_failure = failing;
    try {
      const std::string written = compressed();
      const bool failed = until_failure < 1;
      until_failure = kPlenty;
      ASSERT_TRUE(written == whole) << "request " << failing;
      if (!failed) break;
    } catch (const std::exception&) {  // bad_alloc, or what a stream makes of it
      until_failure = kPlenty;
      ++refused;
    }
  }
  EXPECT_GT(refused, 3);
}

TEST(HistoryOnAHit, AsksForNoMemory) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  for (const HistoryContext context : {HistoryContext::none, HistoryContext::all}) {
    HistoryOptions options;
    options.context = context;
    options.max_entries = 5000;
    allocator.record_history(options);
    // One place in the program, so that the second round brings no new stack.
    std::uint64_t before = 0;
    for (const int pairs : {2, 10000}) {
      before = requests;
      for (int i = 0; i < pairs; ++i) allocator.deallocate(allocator.allocate(1000));
    }
    EXPECT_EQ(requests - before, 0U);
  }
}

}  // namespace
}  // namespace cistern
