// Page-locked host memory of many threads, and that no call of the driver is made under its lock.

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;

TEST(HostHeapThreadsTest, BlocksOfManyThreadsNeverOverlap) {
  SimulatedDriver driver({.capacity_bytes = 64 * kMega, .drive = Drive::free});
  CachingAllocator allocator({.driver = &driver.api()});
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      const StreamHandle stream = driver.create_stream();
      std::vector<std::pair<unsigned char*, std::size_t>> held;
      std::uint32_t random = static_cast<std::uint32_t>(number) + 1;
      for (int step = 0; step < 400; ++step) {
        random = random * 1664525 + 1013904223;
        const std::size_t bytes = (random >> 8) % (step % 10 == 0 ? 2 * kMega : 8000) + 1;
        auto* const block = static_cast<unsigned char*>(allocator.allocate_host(bytes));
        block[0] = block[bytes - 1] = static_cast<unsigned char>(number);
        held.emplace_back(block, bytes);
        if (held.size() < 8) continue;
        const auto [first, size] = held[random % held.size()];
        EXPECT_EQ(first[0], static_cast<unsigned char>(number));
        EXPECT_EQ(first[size - 1], static_cast<unsigned char>(number));
        if (step % 3 == 0) allocator.record_host_stream(first, stream);
        allocator.deallocate_host(first);
        held.erase(held.begin() + (random % static_cast<std::uint32_t>(held.size())));
        if (step % 100 == 0) allocator.empty_host_cache();
      }
      for (const auto& [block, bytes] : held) allocator.deallocate_host(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  allocator.empty_host_cache();
  allocator.check();
  EXPECT_EQ(allocator.host_memory_stats().allocated_bytes.current, 0);
}

// No call of the driver is made under the heap's lock: during each one another thread allocates.
TEST(HostHeapLockTest, NoDriverCallIsMadeUnderTheLock) {
  struct Watch {
    SimulatedDriver driver{{.capacity_bytes = 64 * kMega}};
    CachingAllocator* allocator = nullptr;
    int calls = 0;
    void meanwhile() {
      if (allocator == nullptr) return;
      ++calls;
      std::thread([this] { static_cast<void>(allocator->host_memory_stats()); }).join();
    }
  } watch;
  DriverApi api = watch.driver.api();
  api.event_query = {&watch, [](void* self, CUevent event) {
                       auto& of = *static_cast<Watch*>(self);
                       of.meanwhile();
                       return of.driver.api().event_query(event);
                     }};
  api.event_record = {&watch, [](void* self, CUevent event, CUstream stream) {
                        auto& of = *static_cast<Watch*>(self);
                        of.meanwhile();
                        return of.driver.api().event_record(event, stream);
                      }};
  api.event_create = {&watch, [](void* self, CUevent* event, unsigned flags) {
                        auto& of = *static_cast<Watch*>(self);
                        of.meanwhile();
                        return of.driver.api().event_create(event, flags);
                      }};
  api.event_synchronize = {&watch, [](void* self, CUevent event) {
                             auto& of = *static_cast<Watch*>(self);
                             of.meanwhile();
                             return of.driver.api().event_synchronize(event);
                           }};
  api.mem_host_alloc = {&watch, [](void* self, void** pointer, std::size_t bytes, unsigned flags) {
                          auto& of = *static_cast<Watch*>(self);
                          of.meanwhile();
                          return of.driver.api().mem_host_alloc(pointer, bytes, flags);
                        }};
  api.mem_free_host = {&watch, [](void* self, void* pointer) {
                         auto& of = *static_cast<Watch*>(self);
                         of.meanwhile();
                         return of.driver.api().mem_free_host(pointer);
                       }};
  CachingAllocator allocator({.driver = &api});
  const StreamHandle stream = watch.driver.create_stream();
  watch.allocator = &allocator;
  for (int i = 0; i < 2; ++i) {
    void* const block = allocator.allocate_host(kMega);
    watch.driver.occupy(stream, 1ms);
    allocator.record_host_stream(block, stream);
    allocator.deallocate_host(block);
    static_cast<void>(allocator.allocate_host(100));
  }
  allocator.empty_host_cache();
  EXPECT_GE(watch.calls, 7);
  watch.allocator = nullptr;
}

}  // namespace
}  // namespace cistern
