// A block freed by another thread is found by the page that it lies in: whose is that, while memory comes and goes?

#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

// A driver whose allocations and addresses begin in the middle of a page of 2 MiB.
class MisalignedDriver {
 public:
  MisalignedDriver() : api_(driver.api()) {
    api_.mem_alloc = {this, [](void* self, CUdeviceptr* pointer, std::size_t bytes) {
                        const CUresult result = inner(self).mem_alloc(pointer, bytes);
                        *pointer += kMega;
                        return result;
                      }};
    api_.mem_free = {this, [](void* self, CUdeviceptr pointer) { return inner(self).mem_free(pointer - kMega); }};
    api_.mem_address_reserve = {this, [](void* self, CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment,
                                         CUdeviceptr address, unsigned long long flags) {
                                  const CUresult result =
                                      inner(self).mem_address_reserve(pointer, bytes, alignment, address, flags);
                                  *pointer += kMega;
                                  return result;
                                }};
    api_.mem_address_free = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes) {
                               return inner(self).mem_address_free(pointer - kMega, bytes);
                             }};
    api_.mem_map = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags) {
                      return inner(self).mem_map(pointer - kMega, bytes, offset, handle, flags);
                    }};
    api_.mem_unmap = {this, [](void* self, CUdeviceptr pointer, std::size_t bytes) {
                        return inner(self).mem_unmap(pointer - kMega, bytes);
                      }};
    api_.mem_set_access = {
        this, [](void* self, CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* access, std::size_t count) {
          return inner(self).mem_set_access(pointer - kMega, bytes, access, count);
        }};
  }
  [[nodiscard]] const DriverApi& api() const { return api_; }

  SimulatedDriver driver{{.capacity_bytes = 256 * kMega, .backing = Backing::none}};

 private:
  static const DriverApi& inner(void* self) { return static_cast<MisalignedDriver*>(self)->driver.api(); }

  DriverApi api_;
};

TEST(StreamPages, SegmentsOfTwoStreamsMayShareAPage) {
  MisalignedDriver misaligned;
  CachingAllocator allocator({.driver = &misaligned.api(), .options = AllocatorOptions::parse("policy:classic")});
  const std::array<StreamHandle, 2> streams{misaligned.driver.create_stream(), misaligned.driver.create_stream()};
  for (int round = 0; round < 5; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < 3000; ++i)
      blocks.push_back(allocator.allocate(kKibi, streams[static_cast<std::size_t>(i % 2)]));
    ::testing::internal::CaptureStderr();
    const auto free_all = [&] {
      for (void* block : blocks) allocator.deallocate(block);
    };
    if (round % 2 == 0)
      free_all();
    else
      std::thread(free_all).join();
    EXPECT_EQ(::testing::internal::GetCapturedStderr().substr(0, 200), "");
    EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
    allocator.check();
    if (round == 2) allocator.empty_cache();
  }
}

// Expandable segments there are the heap's: of their own stream, and of one that has their range after it.
TEST(StreamPages, BlocksOfARangeThatSharesPagesAreFoundByTheHeap) {
  MisalignedDriver misaligned;
  CachingAllocator allocator({.driver = &misaligned.api(), .options = AllocatorOptions::parse("policy:expandable")});
  const StreamHandle stream = misaligned.driver.create_stream();
  const StreamHandle heir = misaligned.driver.create_stream();
  for (const StreamHandle of : {stream, heir}) {
    for (int i = 0; i < 5; ++i) {
      void* const block = allocator.allocate(3 * kMega, of);
      allocator.deallocate(block);
      EXPECT_NO_THROW(allocator.check());
    }
    if (of == stream) allocator.release_stream(stream);
  }
  EXPECT_EQ(allocator.memory_stats().num_device_alloc, 1) << "the heir has the range";
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
}

// A driver that does something else in the middle of giving memory back, when the memory is its own again.
class InterruptedDriver {
 public:
  InterruptedDriver() : api_(driver.api()) {
    api_.mem_free = {this, [](void* self, CUdeviceptr pointer) {
                       auto& that = *static_cast<InterruptedDriver*>(self);
                       const CUresult result = that.driver.api().mem_free(pointer);
                       if (const auto work = std::exchange(that.meanwhile, nullptr)) work();
                       return result;
                     }};
  }
  [[nodiscard]] const DriverApi& api() const { return api_; }

  SimulatedDriver driver{{.capacity_bytes = 256 * kMega, .backing = Backing::none}};
  std::function<void()> meanwhile;

 private:
  DriverApi api_;
};

// By the address alone it would be the old stream's, whose thread would be handed the block and not know it.
void free_where_a_segment_was(bool in_private_pool) {
  InterruptedDriver interrupted;
  CachingAllocator allocator({.driver = &interrupted.api(), .options = AllocatorOptions::parse("policy:classic")});
  const StreamHandle old_stream = interrupted.driver.create_stream();
  const StreamHandle new_stream = interrupted.driver.create_stream();
  const MemPool pool(allocator);  // whose segments are not found by page
  void* old_block = nullptr;
  std::thread([&] {
    for (int i = 0; i < 3; ++i) {
      old_block = allocator.allocate(kKibi, old_stream);
      allocator.deallocate(old_block);
    }
  }).join();
  interrupted.meanwhile = [&] {
    std::optional<MemPoolGuard> guard;
    if (in_private_pool) guard.emplace(pool);
    void* block = allocator.allocate(kKibi, new_stream);
    EXPECT_EQ(block, old_block) << "elsewhere this tests nothing";
    ::testing::internal::CaptureStderr();
    allocator.deallocate(block);
    static_cast<void>(allocator.memory_stats());
    EXPECT_EQ(::testing::internal::GetCapturedStderr().substr(0, 200), "");
  };
  allocator.empty_cache();
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  allocator.check();
}

TEST(StreamPages, WhatTheDriverMakesWhereASegmentWasIsFreedByItsOwnStream) {
  free_where_a_segment_was(false);
  free_where_a_segment_was(true);
}

// A segment that the driver does not take back serves on, whoever frees its blocks.
TEST(StreamPages, WhatTheDriverRefusesToTakeBackIsFoundByItsPagesAgain) {
  InterruptedDriver interrupted;
  CachingAllocator allocator(
      {.driver = &interrupted.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  const StreamHandle stream = interrupted.driver.create_stream();
  for (int i = 0; i < 3; ++i) allocator.deallocate(allocator.allocate(kKibi, stream));
  interrupted.driver.fail_call("cuMemFree", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(allocator.empty_cache(), DriverError);
  void* block = allocator.allocate(kKibi, stream);
  allocator.check();
  std::thread([&] { allocator.deallocate(block); }).join();
  EXPECT_EQ(allocator.memory_stats().allocation.all.current, 0);
  allocator.check();
}

}  // namespace
}  // namespace cistern
