// Two threads, one of which is in a driver call with the heap's lock given up. A table of
// our own around the simulated driver's tells when the call is reached and holds it there.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// The simulated driver, with a hook before each allocation and each release of memory, and before
// each wait for an event.
struct HookedDriver {
  explicit HookedDriver(std::size_t capacity_bytes)
      : driver({.capacity_bytes = capacity_bytes, .backing = Backing::none}), api(driver.api()) {
    api.mem_alloc = {this, [](void* self, CUdeviceptr* pointer, std::size_t bytes) {
                       auto* hooked = static_cast<HookedDriver*>(self);
                       if (hooked->before_allocate) hooked->before_allocate();
                       return hooked->driver.api().mem_alloc(pointer, bytes);
                     }};
    api.mem_free = {this, [](void* self, CUdeviceptr pointer) {
                      auto* hooked = static_cast<HookedDriver*>(self);
                      if (hooked->before_free) hooked->before_free();
                      const CUresult result = hooked->driver.api().mem_free(pointer);
                      ++hooked->frees_done;
                      return result;
                    }};
    api.stream_wait_event = {this, [](void* self, CUstream stream, CUevent event, unsigned flags) {
                               auto* hooked = static_cast<HookedDriver*>(self);
                               if (hooked->before_wait) hooked->before_wait();
                               return hooked->driver.api().stream_wait_event(stream, event, flags);
                             }};
  }

  SimulatedDriver driver;
  DriverApi api;
  std::function<void()> before_allocate;
  std::function<void()> before_free;
  std::function<void()> before_wait;
  std::atomic<int> frees_done{0};
};

// While one thread gives the cache back, another one's request misses: the memory is neither
// in the cache nor with the driver, but it is about to be there.
TEST(Interleaving, ARequestDoesNotFailWhileAnotherThreadGivesMemoryBack) {
  HookedDriver hooked(64 * kMega);
  CachingAllocator allocator(
      {.driver = &hooked.api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  allocator.deallocate(allocator.allocate(60 * kMega));

  std::atomic<bool> releasing{false};
  hooked.before_free = [&] {
    releasing = true;
    // Until the other request has begun its own flush, and a while longer.
    while (allocator.memory_stats().num_sync_all_streams < 2) std::this_thread::yield();
    for (int i = 0; i < 2000; ++i) std::this_thread::yield();
  };
  std::thread flushing([&] { allocator.empty_cache(); });
  while (!releasing) std::this_thread::yield();
  void* served = nullptr;
  EXPECT_NO_THROW(served = allocator.allocate(50 * kMega));
  flushing.join();
  hooked.before_free = nullptr;
  EXPECT_NE(served, nullptr);
  EXPECT_EQ(allocator.memory_stats().num_ooms, 0);
}

// Two requests that fit the limit one by one, but not together.
TEST(Interleaving, TwoThreadsCannotPassTheLimitTogether) {
  HookedDriver hooked(256 * kMega);
  CachingAllocator allocator(
      {.driver = &hooked.api, .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  allocator.set_memory_fraction(0.25);
  std::atomic<int> inside{0};
  std::atomic<bool> second_is_done{false};
  hooked.before_allocate = [&] {
    if (++inside > 1) return;
    while (!second_is_done) std::this_thread::yield();
  };
  std::thread first([&] { static_cast<void>(allocator.allocate(40 * kMega)); });
  while (inside == 0) std::this_thread::yield();
  EXPECT_THROW(static_cast<void>(allocator.allocate(40 * kMega)), OutOfMemoryError);
  second_is_done = true;
  first.join();
  hooked.before_allocate = nullptr;
  EXPECT_LE(hooked.driver.peak_used_bytes(), 64 * kMega);
}

// A slow driver call of one thread does not stop another's hits.
TEST(Interleaving, HitsGoOnWhileAnotherThreadIsInTheDriver) {
  HookedDriver hooked(256 * kMega);
  CachingAllocator allocator({.driver = &hooked.api, .options = AllocatorOptions::parse("policy:classic")});
  void* cached = allocator.allocate(kMega);
  std::atomic<bool> inside{false};
  std::atomic<bool> go_on{false};
  hooked.before_allocate = [&] {
    inside = true;
    while (!go_on) std::this_thread::yield();
  };
  std::thread slow([&] { static_cast<void>(allocator.allocate(100 * kMega)); });
  while (!inside) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    allocator.deallocate(cached);
    EXPECT_EQ(allocator.allocate(kMega), cached);
  }
  EXPECT_NO_THROW(allocator.check());
  go_on = true;
  slow.join();
}

// While a stream is ordered behind the one whose memory it inherits, the memory is in no pool, and
// still not to be given back.
TEST(Interleaving, AFlushLeavesASegmentThatIsOnItsWayToAnotherStream) {
  HookedDriver hooked(256 * kMega);
  CachingAllocator allocator({.driver = &hooked.api, .options = AllocatorOptions::parse("policy:classic")});
  const StreamHandle stream = hooked.driver.create_stream();
  const StreamHandle heir = hooked.driver.create_stream();
  void* block = allocator.allocate(30 * kMega, stream);
  hooked.driver.occupy(stream, std::chrono::milliseconds(1));
  allocator.deallocate(block);
  allocator.release_stream(stream);
  hooked.driver.destroy_stream(stream);
  int waits = 0;
  hooked.before_wait = [&] {
    ++waits;
    std::thread([&] {
      allocator.empty_cache();
      EXPECT_NO_THROW(allocator.check());
    }).join();
  };
  EXPECT_EQ(allocator.allocate(30 * kMega, heir), block);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(hooked.driver.used_bytes(), 30 * kMega);
  EXPECT_NO_THROW(allocator.check());
}

}  // namespace
}  // namespace cistern
