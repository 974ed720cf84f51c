// Stream-ordered allocations: what is reused when, and when memory goes back to the device.
#include <gtest/gtest.h>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

class MemoryPoolsTest : public ::testing::Test {
 protected:
  CUdeviceptr allocate(std::size_t bytes, CUstream stream) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(api.mem_alloc_async(&pointer, bytes, stream), CUDA_SUCCESS);
    return pointer;
  }
  void release(CUdeviceptr pointer, CUstream stream) { EXPECT_EQ(api.mem_free_async(pointer, stream), CUDA_SUCCESS); }
  CUmemoryPool pool() {
    CUmemoryPool found = nullptr;
    EXPECT_EQ(api.device_get_mem_pool(&found, 0), CUDA_SUCCESS);
    return found;
  }
  void allow(CUmemPool_attribute rule, bool on) {
    int value = on ? 1 : 0;
    EXPECT_EQ(api.mem_pool_set_attribute(pool(), rule, &value), CUDA_SUCCESS);
  }
  std::uint64_t attribute(CUmemPool_attribute which) {
    cuuint64_t value = 0;
    EXPECT_EQ(api.mem_pool_get_attribute(pool(), which, &value), CUDA_SUCCESS);
    return value;
  }

  ReadyDriver ready{{.devices = 2, .capacity_bytes = 16 * MiB}};
  const DriverApi& api = ready.api;
  const StreamHandle a = ready.driver.create_stream();
  const StreamHandle b = ready.driver.create_stream();
};

TEST_F(MemoryPoolsTest, AFreeIsReusedAtOnceOnItsStreamAndNotOnAnother) {
  const CUdeviceptr first = allocate(2 * MiB, a);
  release(first, a);
  EXPECT_EQ(allocate(2 * MiB, a), first);
  release(first, a);
  EXPECT_NE(allocate(2 * MiB, b), first);
}

TEST_F(MemoryPoolsTest, AnEventBehindTheFreeLetsAnotherStreamReuseIt) {
  const CUdeviceptr first = allocate(2 * MiB, a);
  release(first, a);
  const CUevent event = ready.create_event();
  EXPECT_EQ(api.event_record(event, a), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_wait_event(b, event, 0), CUDA_SUCCESS);
  allow(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, false);
  EXPECT_NE(allocate(2 * MiB, b), first);
  allow(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, true);
  EXPECT_EQ(allocate(2 * MiB, b), first);
}

TEST_F(MemoryPoolsTest, AFreeThatHasRunIsReusedWhereThatIsAllowed) {
  const CUdeviceptr first = allocate(2 * MiB, a);
  release(first, a);
  EXPECT_TRUE(ready.driver.step());
  EXPECT_TRUE(ready.driver.step());
  allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, false);
  EXPECT_NE(allocate(2 * MiB, b), first);
  allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, true);
  EXPECT_EQ(allocate(2 * MiB, b), first);
}

TEST_F(MemoryPoolsTest, OnAFullDeviceAnAllocationWaitsForAFreeOnAnotherStream) {
  const CUdeviceptr first = allocate(16 * MiB, a);
  std::vector<int> order;
  ready.note(a, order, 1);
  release(first, a);
  CUdeviceptr refused = 0;
  allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, false);
  EXPECT_EQ(api.mem_alloc_async(&refused, 16 * MiB, b), CUDA_ERROR_OUT_OF_MEMORY);
  allow(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, true);
  EXPECT_EQ(allocate(16 * MiB, b), first);
  ready.note(b, order, 2);
  EXPECT_EQ(api.stream_synchronize(b), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(MemoryPoolsTest, MemoryIsThereBetweenTheTurnsOfAllocationAndFree) {
  const CUdeviceptr pointer = allocate(1000, a);
  EXPECT_EQ(api.memset_d8_async(pointer, 7, 1000, a), CUDA_SUCCESS);
  EXPECT_EQ(api.memset_d8_async(pointer, 7, 1001, a), CUDA_ERROR_INVALID_VALUE);
  release(pointer, a);
  EXPECT_EQ(api.memset_d8_async(pointer, 7, 1000, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.stream_synchronize(a), CUDA_SUCCESS);
  const CUdeviceptr early = allocate(1000, a);
  EXPECT_EQ(api.memset_d8_async(early, 7, 1000, b), CUDA_SUCCESS);  // not ordered behind the allocation
  EXPECT_EQ(api.stream_synchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(MemoryPoolsTest, ASynchronisationGivesBackWhatIsAboveTheThreshold) {
  release(allocate(4 * MiB, a), a);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  EXPECT_EQ(api.stream_synchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
  cuuint64_t threshold = 4 * MiB;
  EXPECT_EQ(api.mem_pool_set_attribute(pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), CUDA_SUCCESS);
  release(allocate(4 * MiB, a), a);
  EXPECT_EQ(api.stream_synchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * MiB);
  EXPECT_EQ(api.mem_pool_trim_to(pool(), 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

TEST_F(MemoryPoolsTest, HighWatermarksAreResetToZeroOnly) {
  const CUdeviceptr first = allocate(2 * MiB, a);
  release(allocate(4 * MiB, a), a);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * MiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 6 * MiB);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 6 * MiB);
  cuuint64_t value = 1;
  EXPECT_EQ(api.mem_pool_set_attribute(pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
  value = 0;
  EXPECT_EQ(api.mem_pool_set_attribute(pool(), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_SUCCESS);
  EXPECT_EQ(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 2 * MiB);
  release(first, a);
}

TEST_F(MemoryPoolsTest, EitherFreeTakesEitherAllocation) {
  const CUdeviceptr ordered = allocate(2 * MiB, a);
  EXPECT_EQ(api.mem_free(ordered), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_free(ordered), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr plain = ready.allocate(2 * MiB);
  release(plain, a);
  EXPECT_EQ(api.mem_free_async(plain, a), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_free(plain), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

TEST_F(MemoryPoolsTest, ADestroyedPoolsMemoryGoesWithItsLastAllocation) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool own = nullptr;
  EXPECT_EQ(api.mem_pool_create(&own, &properties), CUDA_SUCCESS);
  EXPECT_EQ(api.device_set_mem_pool(1, own), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_pool_destroy(pool()), CUDA_ERROR_INVALID_VALUE);  // the default one
  const CUmemoryPool before = pool();
  EXPECT_EQ(api.device_set_mem_pool(0, own), CUDA_SUCCESS);
  const CUdeviceptr pointer = allocate(2 * MiB, a);
  EXPECT_EQ(api.mem_pool_destroy(own), CUDA_SUCCESS);
  EXPECT_EQ(pool(), before);
  EXPECT_EQ(ready.driver.used_bytes(), 2 * MiB);
  release(pointer, a);
  EXPECT_EQ(api.stream_synchronize(a), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
  EXPECT_EQ(api.mem_pool_destroy(own), CUDA_ERROR_INVALID_VALUE);
}

// CUmemPoolProps, maxSize.
TEST_F(MemoryPoolsTest, APoolHoldsNoMoreThanItsGreatestSize) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.maxSize = 4 * MiB;
  CUmemoryPool own = nullptr;
  EXPECT_EQ(api.mem_pool_create(&own, &properties), CUDA_SUCCESS);
  EXPECT_EQ(api.device_set_mem_pool(0, own), CUDA_SUCCESS);
  const CUdeviceptr first = allocate(2 * MiB, a);
  allocate(2 * MiB, a);
  CUdeviceptr refused = 0;
  EXPECT_EQ(api.mem_alloc_async(&refused, 1, a), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  release(first, a);
  EXPECT_EQ(allocate(2 * MiB, a), first);
}

TEST_F(MemoryPoolsTest, KernelsOfAPeerNeedThePoolsAccess) {
  const CUdeviceptr pointer = allocate(1000, a);
  EXPECT_EQ(api.stream_synchronize(a), CUDA_SUCCESS);
  const StreamHandle there = ready.driver.create_stream(1);
  const MemoryRange range{reinterpret_cast<const void*>(pointer), 1000};
  EXPECT_ANY_THROW(ready.driver.launch(there, {range}, {}, 0ns, {}));
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  EXPECT_EQ(api.mem_pool_set_access(pool(), &access, 1), CUDA_SUCCESS);
  ready.driver.launch(there, {range}, {}, 0ns, {});
  EXPECT_ANY_THROW(ready.driver.launch(there, {}, {range}, 0ns, {}));
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cistern
