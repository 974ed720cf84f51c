// What other threads do while a driver call of an expandable segment is under way.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "allocator/device_heaps.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

constexpr const char* kExpandableThreads = "oom_dump:off,expandable_segments:True";

// A driver that does something on the side, once, in the middle of one of its calls.
struct Interrupted {
  explicit Interrupted(const DriverApi& inner) : driver(inner), api(inner) {}
  void interrupt() {
    if (meanwhile != nullptr) std::exchange(meanwhile, nullptr)();
  }

  const DriverApi& driver;
  DriverApi api;
  std::function<void()> meanwhile;
  std::atomic<bool> has_recorded{false};
};

// Lets another thread, which may not get on, take the heap's lock many times over if it can.
template <class UseLock, class Arrived>
void let_others_go_on(UseLock&& use_lock, Arrived&& arrived) {
  for (int i = 0; i < 2000 || (!arrived() && i < 1000000); ++i) {
    use_lock();
    std::this_thread::yield();
  }
}

TEST(ExpandableThreads, AStreamEndsOnlyWhenNobodyWaitsForItAnyMore) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  Interrupted interrupted(driver.api());
  interrupted.api.event_record = {&interrupted, [](void* self, CUevent event, CUstream stream) {
                                    auto& me = *static_cast<Interrupted*>(self);
                                    const CUresult result = me.driver.event_record(event, stream);
                                    me.has_recorded = true;
                                    return result;
                                  }};
  interrupted.api.stream_synchronize = {&interrupted, [](void* self, CUstream stream) {
                                          auto& me = *static_cast<Interrupted*>(self);
                                          me.interrupt();
                                          return me.driver.stream_synchronize(stream);
                                        }};
  CachingAllocator allocator({.driver = &interrupted.api, .options = AllocatorOptions::parse(kExpandableThreads)});
  const StreamHandle stream = driver.create_stream();
  allocator.deallocate(allocator.allocate(20 * kMega, stream));
  std::atomic<bool> has_ended{false};
  std::thread owner;
  interrupted.meanwhile = [&] {
    owner = std::thread([&] {
      allocator.release_stream(stream);
      has_ended = true;
    });
    let_others_go_on([&] { static_cast<void>(allocator.memory_stats()); },
                     [&] { return interrupted.has_recorded.load(); });
    EXPECT_FALSE(has_ended) << "its owner would destroy the stream that is waited for";
  };
  allocator.empty_cache();
  owner.join();
  driver.destroy_stream(stream);
  EXPECT_EQ(driver.used_bytes(), 0U);
  allocator.check();
}

TEST(ExpandableThreads, ARangeThatChangesHandsIsNobodysMeanwhile) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  Interrupted interrupted(driver.api());
  interrupted.api.stream_wait_event = {&interrupted, [](void* self, CUstream stream, CUevent event, unsigned flags) {
                                         auto& me = *static_cast<Interrupted*>(self);
                                         me.interrupt();
                                         return me.driver.stream_wait_event(stream, event, flags);
                                       }};
  CachingAllocator allocator({.driver = &interrupted.api, .options = AllocatorOptions::parse(kExpandableThreads)});
  const StreamHandle first = driver.create_stream();
  const StreamHandle second = driver.create_stream();
  void* const block = allocator.allocate(20 * kMega, first);
  allocator.deallocate(block);
  driver.occupy(first, std::chrono::milliseconds(1));
  allocator.release_stream(first);
  bool has_checked = false;
  interrupted.meanwhile = [&] {
    EXPECT_NO_THROW(allocator.check());
    has_checked = true;
  };
  EXPECT_EQ(allocator.allocate(20 * kMega, second), block);
  EXPECT_TRUE(has_checked);
  allocator.check();
}

// ThreadSanitizer sees it if the list of peers moves while a map reads it.
TEST(ExpandableThreads, APeerIsLetInBetweenMapsAndNotWithinOne) {
  SimulatedOptions options;
  options.capacity_bytes = 256 * kMega;
  options.backing = Backing::none;
  options.devices = 3;
  SimulatedDriver driver(options);
  Interrupted interrupted(driver.api());
  interrupted.api.mem_map = {&interrupted, [](void* self, CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                                              CUmemGenericAllocationHandle handle, unsigned long long flags) {
                               auto& me = *static_cast<Interrupted*>(self);
                               me.interrupt();
                               return me.driver.mem_map(pointer, bytes, offset, handle, flags);
                             }};
  Contexts contexts(interrupted.api);
  DeviceHeaps heaps(contexts, AllocatorOptions::parse(kExpandableThreads));
  DeviceAllocator& heap = heaps.heap(0);
  heap.allow_peer(1);
  std::atomic<bool> is_let_in{false};
  std::thread peer;
  interrupted.meanwhile = [&] {
    peer = std::thread([&] {
      heap.allow_peer(2);
      is_let_in = true;
    });
    let_others_go_on([&] { static_cast<void>(heap.stats()); }, [] { return true; });
    EXPECT_FALSE(is_let_in) << "the pages are not mapped yet";
  };
  void* block = heaps.allocate(60 * kMega, {}, 0);
  peer.join();
  EXPECT_NE(block, nullptr);
  const std::uint64_t calls = driver.calls("cuMemSetAccess");
  heap.allow_peer(2);
  EXPECT_EQ(driver.calls("cuMemSetAccess"), calls) << "it is known";
  heap.check();
}

}  // namespace
}  // namespace cistern
