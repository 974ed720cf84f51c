// With no host memory left the history never fails a request; and on a hit it asks for none.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "stats/gzip_output.h"
#include "stats/history.h"
#include "tests/byte_units.h"

namespace {

constexpr long kPlenty = 1L << 60;
std::atomic<long> left{kPlenty};  // requests that are served
std::atomic<std::uint64_t> requests{0};
std::atomic<long> until_failure{kPlenty};  // the request of that number is refused, and no other

bool is_served() {
  ++requests;
  return left.fetch_sub(1) > 0 && until_failure.fetch_sub(1) != 1;
}

// Out of line, both: else the compiler sees new meet free.
[[gnu::noinline]] void* request(std::size_t bytes) { return is_served() ? std::malloc(bytes) : nullptr; }

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

// The history's chunks are mapped. The C library's own allocator does not come through this.
extern "C" void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  static const auto next = reinterpret_cast<decltype(&mmap)>(dlsym(RTLD_NEXT, "mmap"));
  return is_served() ? next(address, bytes, protection, flags, file, offset) : MAP_FAILED;
}

namespace cistern {
namespace {

TEST(HistoryWithoutMemory, AnUnlimitedRingStaysAsLargeAsItIs) {
  DeviceHistory history;
  HistoryOptions options;
  options.max_entries = kUnlimitedEntries;
  static_cast<void>(history.set_options(options, HistoryRing(history.ring_for(options).capacity)));
  TracePoint at;
  {
    const MemoryGone gone;
    for (at.size = 0; at.size < 20000; ++at.size) history.add(TraceAction::alloc, at);
  }
  // Its first chunk.
  DeviceHistory::Copy copy;
  history.copy_to(copy);
  std::vector<std::int64_t> sizes;
  copy.entries.for_each([&sizes](const HistoryEntry& entry) { sizes.push_back(entry.size); });
  ASSERT_EQ(sizes.size(), HistoryRing::kChunk);
  EXPECT_EQ(sizes.front(), 20000 - static_cast<std::int64_t>(HistoryRing::kChunk));
  EXPECT_EQ(sizes.back(), 19999);
  EXPECT_TRUE(copy.overflowed);
  EXPECT_EQ(history.info().lost, 0U);
}

// What the next chunk takes was brought before.
TEST(HistoryWithoutMemory, AnUnlimitedRingGrowsByWhatWasBrought) {
  DeviceHistory history;
  HistoryOptions options;
  options.context = HistoryContext::none;
  static_cast<void>(history.set_options(options, HistoryRing(history.ring_for(options).capacity)));
  TracePoint at;
  for (at.size = 0; at.size < 20000; ++at.size) {
    history.provide();
    const MemoryGone gone;
    history.add(TraceAction::alloc, at);
  }
  EXPECT_EQ(history.info().entries, 20000U);
  EXPECT_EQ(history.info().recorded, 20000U);
}

TEST(HistoryWithoutMemory, OffTakesBackWhatWasBrought) {
  DeviceHistory history;
  HistoryOptions options;
  options.context = HistoryContext::none;
  static_cast<void>(history.set_options(options, HistoryRing(history.ring_for(options).capacity)));
  history.provide();
  options.enabled = HistoryEnabled::none;
  EXPECT_TRUE(history.set_options(options, HistoryRing()).spare);
  const std::uint64_t before = requests;
  history.provide();
  EXPECT_EQ(requests, before);
}

// A ring cannot write where a snapshot reads.
TEST(HistoryWithoutMemory, WhatHasNoPlaceBesideASnapshotIsLostAndCounted) {
  DeviceHistory history;
  HistoryOptions options;
  options.context = HistoryContext::none;
  options.max_entries = 2 * HistoryRing::kChunk;
  static_cast<void>(history.set_options(options, HistoryRing(history.ring_for(options).capacity)));
  TracePoint at;
  const auto write = [&](std::size_t events) {
    for (std::size_t i = 0; i < events; ++i, ++at.size) history.add(TraceAction::alloc, at);
  };
  write(2 * HistoryRing::kChunk);
  {
    DeviceHistory::Copy copy;
    history.copy_to(copy);
    const MemoryGone gone;
    write(100);
    EXPECT_EQ(history.info().lost, 100U);
    EXPECT_EQ(history.info().recorded, 2 * HistoryRing::kChunk);
    copy.entries.for_each([expected = std::int64_t{0}](const HistoryEntry& entry) mutable {
      ASSERT_EQ(entry.size, expected);
      ++expected;
    });
  }
  write(100);
  EXPECT_EQ(history.info().lost, 100U) << "the snapshot is gone";
  EXPECT_EQ(history.info().entries, 2 * HistoryRing::kChunk);
}

TEST(HistoryWithoutMemory, ANewStackIsLeftOutAndCounted) {
  DeviceHistory history;
  HistoryOptions options;
  static_cast<void>(history.set_options(options, HistoryRing(history.ring_for(options).capacity)));
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

TEST(HistoryWithoutMemory, ATextIsCarriedByAllDevicesOrByNone) {
  SimulatedDriver driver({.devices = 3, .capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  for (int device = 0; device < 3; ++device) static_cast<void>(allocator.allocate(1000, nullptr, device));
  allocator.set_user_metadata("before");
  const std::string text = "a text that takes some memory of its own";
  const auto texts_of_new_entries = [&] {
    for (int device = 0; device < 3; ++device) static_cast<void>(allocator.allocate(1000, nullptr, device));
    const Snapshot snapshot = allocator.snapshot();
    std::vector<std::string> texts;
    for (const auto& trace : snapshot.device_traces) {
      const auto number = static_cast<std::size_t>(trace.at(trace.size() - 1).user_metadata);
      texts.push_back(snapshot.texts.at(number));
    }
    return texts;
  };
  const auto try_after = [&](long served, std::string_view next) {
    const MemoryGone gone(served);
    try {
      allocator.set_user_metadata(next);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  };
  long served = 0;
  for (; !try_after(served, text); ++served) {
    ASSERT_EQ(allocator.user_metadata(), "before");
    ASSERT_EQ(texts_of_new_entries(), std::vector<std::string>(3, "before")) << served;
  }
  EXPECT_GT(served, 3) << "each device needs some";
  EXPECT_EQ(allocator.user_metadata(), text);
  EXPECT_EQ(texts_of_new_entries(), std::vector<std::string>(3, text));

  // Nothing stays of texts that some of the devices had room for: there are numbers for 65,535.
  int refused = 0;
  for (int i = 0; i < 70000; ++i) refused += try_after(5, text + std::to_string(i)) ? 0 : 1;
  EXPECT_GT(refused, 65535);
  allocator.set_user_metadata("after");
  EXPECT_EQ(texts_of_new_entries(), std::vector<std::string>(3, "after"));
}

TEST(OptionsWithoutMemory, ChangeOnAllDevicesOrOnNone) {
  SimulatedDriver driver({.devices = 3, .capacity_bytes = 64 * kMega, .backing = Backing::none});
  CachingAllocator allocator({.driver = &driver.api()});
  for (int device = 0; device < 3; ++device) static_cast<void>(allocator.allocate(1000, nullptr, device));
  const std::string before = allocator.options().describe();
  const std::string text = "per_process_memory_fraction:0.5,history_entries:100,oom_dump:" + std::string(100, 'x');
  const auto try_after = [&](long served) {
    const MemoryGone gone(served);
    try {
      allocator.set_options(text);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  };
  long served = 0;
  for (; !try_after(served); ++served) {
    ASSERT_EQ(allocator.options().describe(), before) << served;
    ASSERT_EQ(allocator.history_options().max_entries, kDefaultHistoryEntries);
    for (int device = 0; device < 3; ++device) ASSERT_EQ(allocator.memory_fraction(device), 1.0) << served;
  }
  EXPECT_GT(served, 3) << "each device needs some";
  for (int device = 0; device < 3; ++device) EXPECT_EQ(allocator.memory_fraction(device), 0.5);
  EXPECT_EQ(allocator.history_options().max_entries, 100U);
}

// Options are prepared for what a ring holds, and more is recorded before they are applied.
TEST(HistoryOptionsChange, KeepsWhatIsRecordedMeanwhile) {
  for (const std::size_t wanted : {std::size_t{10}, std::size_t{600}, kUnlimitedEntries}) {
    DeviceHistory history;
    HistoryOptions options;
    options.context = HistoryContext::none;
    options.max_entries = 100000;
    static_cast<void>(history.set_options(options, HistoryRing(history.ring_for(options).capacity)));
    TracePoint at;
    const auto write = [&](std::int64_t end) {
      for (; at.size < end; ++at.size) history.add(TraceAction::alloc, at);
    };
    write(500);
    options = history.options();
    options.max_entries = wanted;
    const DeviceHistory::RingSize size = history.ring_for(options);
    HistoryRing ring(size.capacity, size.prepared);
    write(6000);
    {
      const MemoryGone gone;
      static_cast<void>(history.set_options(options, std::move(ring)));
    }
    EXPECT_EQ(history.info().entries, 6000U) << wanted;
    write(7000);
    EXPECT_EQ(history.info().entries, wanted == kUnlimitedEntries ? 7000U : 6000U) << wanted;
  }
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
