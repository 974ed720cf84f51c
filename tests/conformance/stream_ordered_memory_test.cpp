// Memory that is allocated and freed in stream order, and its pools.

#include "tests/conformance/driver_case.h"

namespace cistern::conformance {
namespace {

#define SECTION "Driver API, Stream Ordered Memory Allocator, "

class StreamOrderedMemory : public DriverCase {
 protected:
  void SetUp() override {
    DriverCase::SetUp();
    int supported = 0;
    EXPECT_OK(api.device_get_attribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device));
    if (!api.mem_alloc_async || supported == 0) GTEST_SKIP() << "the device has no memory pools";
  }

  CUmemoryPool make_pool() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    EXPECT_OK(api.mem_pool_create(&pool, &properties));
    return pool;
  }
  CUdeviceptr allocate(std::size_t bytes, CUstream stream) {
    CUdeviceptr memory = 0;
    EXPECT_OK(api.mem_alloc_async(&memory, bytes, stream));
    return memory;
  }
  CUdeviceptr allocate(std::size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr memory = 0;
    EXPECT_OK(api.mem_alloc_from_pool_async(&memory, bytes, pool, stream));
    return memory;
  }
  void free(CUdeviceptr memory, CUstream stream) { EXPECT_OK(api.mem_free_async(memory, stream)); }
  cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    cuuint64_t value = 99;
    EXPECT_OK(api.mem_pool_get_attribute(pool, which, &value));
    return value;
  }
  int switch_of(CUmemoryPool pool, CUmemPool_attribute which) {
    int value = 99;
    EXPECT_OK(api.mem_pool_get_attribute(pool, which, &value));
    return value;
  }
};

STATEMENT(C142, StreamOrderedMemory, ThePointerComesAtOnce, SECTION "cuMemAllocAsync",
          "The pointer is returned at once, and later work of the same stream may use the memory.") {
  const CUstream stream = make_stream();
  // The pool's first memory may need the device.
  free(allocate(4096, stream), stream);
  finish(stream);
  const CUdeviceptr result = make_memory();
  Gate& gate = hold(stream);
  const CUdeviceptr memory = allocate(4096, stream);
  ASSERT_NE(memory, 0u);
  fill(memory, 3, 4096, stream);
  copy(result, memory, 4096, stream);
  free(memory, stream);
  EXPECT_RESULT(CUDA_ERROR_NOT_READY, api.stream_query(stream));
  gate.open();
  finish(stream);
  EXPECT_TRUE(holds(result, 4096, 3));
}

STATEMENT(C143, StreamOrderedMemory, AnEventHandsItToAnotherStream, SECTION "cuMemAllocAsync",
          "Work of another stream may use the memory where an event orders it behind the allocation.") {
  const CUstream owner = make_stream(), user = make_stream();
  const CUevent allocated = make_event(), used = make_event();
  const CUdeviceptr memory = allocate(4096, owner);
  record(allocated, owner);
  wait(user, allocated);
  fill(memory, 4, 4096, user);
  record(used, user);
  finish(user);
  EXPECT_TRUE(holds(memory, 4096, 4));
  wait(owner, used);
  free(memory, owner);
  finish(owner);
}

STATEMENT(C144, StreamOrderedMemory, TheDefaultPoolIsCurrent, SECTION "cuDeviceGetMemPool",
          "Until another one is set, a device's current pool is its default pool.") {
  CUmemoryPool by_default = nullptr, current = nullptr;
  EXPECT_OK(api.device_get_default_mem_pool(&by_default, device));
  EXPECT_OK(api.device_get_mem_pool(&current, device));
  EXPECT_NE(current, nullptr);
  EXPECT_EQ(current, by_default);
}

STATEMENT(C145, StreamOrderedMemory, TheCurrentPoolServesAllocations, SECTION "cuDeviceSetMemPool",
          "cuMemAllocAsync allocates from the pool that is current for the stream's device.") {
  const CUstream stream = make_stream();
  CUmemoryPool by_default = nullptr;
  ASSERT_OK(api.device_get_default_mem_pool(&by_default, device));
  const CUmemoryPool pool = make_pool();
  EXPECT_OK(api.device_set_mem_pool(device, pool));
  const CUdeviceptr memory = allocate(kMiB, stream);
  EXPECT_GE(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), kMiB);
  free(memory, stream);
  finish(stream);
  EXPECT_OK(api.device_set_mem_pool(device, by_default));
  EXPECT_OK(api.mem_pool_destroy(pool));
}

STATEMENT(C146, StreamOrderedMemory, DestroyingTheCurrentPoolRestoresTheDefault, SECTION "cuMemPoolDestroy",
          "Destroying the current pool of a device makes its default pool the current one.") {
  CUmemoryPool by_default = nullptr, current = nullptr;
  ASSERT_OK(api.device_get_default_mem_pool(&by_default, device));
  const CUmemoryPool pool = make_pool();
  EXPECT_OK(api.device_set_mem_pool(device, pool));
  EXPECT_OK(api.device_get_mem_pool(&current, device));
  EXPECT_EQ(current, pool);
  EXPECT_OK(api.mem_pool_destroy(pool));
  EXPECT_OK(api.device_get_mem_pool(&current, device));
  EXPECT_EQ(current, by_default);
}

STATEMENT(C147, StreamOrderedMemory, TheDefaultPoolStays, SECTION "cuMemPoolDestroy",
          "A device's default pool cannot be destroyed.") {
  CUmemoryPool by_default = nullptr;
  ASSERT_OK(api.device_get_default_mem_pool(&by_default, device));
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_pool_destroy(by_default));
}

STATEMENT(
    C148, StreamOrderedMemory, APoolMayBeDestroyedWhileItsMemoryLives, SECTION "cuMemPoolDestroy",
    "A pool may be destroyed while memory of it is in use: the call returns, and the memory lives until it is freed.") {
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool();
  const CUdeviceptr memory = allocate(4096, pool, stream);
  EXPECT_OK(api.mem_pool_destroy(pool));
  fill(memory, 2, 4096, stream);
  finish(stream);
  EXPECT_TRUE(holds(memory, 4096, 2));
  free(memory, stream);
  finish(stream);
}

STATEMENT(C149, StreamOrderedMemory, ReuseIsOnByDefault, SECTION "cuMemPoolSetAttribute",
          "A pool's three ways of reuse are on, and its release threshold is 0, until they are set.") {
  const CUmemoryPool pool = make_pool();
  EXPECT_EQ(switch_of(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), 1);
  EXPECT_EQ(switch_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 1);
  EXPECT_EQ(switch_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0u);
  EXPECT_OK(api.mem_pool_destroy(pool));
}

STATEMENT(C150, StreamOrderedMemory, AttributesAreKept, SECTION "cuMemPoolSetAttribute",
          "An attribute that is set is what a query returns.") {
  const CUmemoryPool pool = make_pool();
  cuuint64_t threshold = 32 * kMiB;
  int off = 0;
  EXPECT_OK(api.mem_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT_OK(api.mem_pool_set_attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), threshold);
  EXPECT_EQ(switch_of(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 0);
  EXPECT_OK(api.mem_pool_destroy(pool));
}

STATEMENT(C151, StreamOrderedMemory, PeaksAreResetToZeroOnly, SECTION "cuMemPoolSetAttribute",
          "The high-water marks may be reset by setting 0 and to nothing else.") {
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool();
  free(allocate(kMiB, pool, stream), stream);
  finish(stream);
  EXPECT_GE(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), kMiB);
  cuuint64_t value = 1;
  EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, api.mem_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &value));
  value = 0;
  EXPECT_OK(api.mem_pool_set_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_OK(api.mem_pool_destroy(pool));
}

STATEMENT(
    C152, StreamOrderedMemory, TheThresholdHoldsMemoryAndTrimGivesItBack, SECTION "cuMemPoolTrimTo",
    "Up to the release threshold a pool keeps what was freed across synchronisations; cuMemPoolTrimTo gives it back.") {
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool();
  cuuint64_t threshold = 64 * kMiB;
  EXPECT_OK(api.mem_pool_set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  free(allocate(8 * kMiB, pool, stream), stream);
  finish(stream);
  EXPECT_GE(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 8 * kMiB);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_OK(api.mem_pool_trim_to(pool, 0));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_OK(api.mem_pool_destroy(pool));
}

STATEMENT(C153, StreamOrderedMemory, WithoutAThresholdASynchronizeReleases, SECTION "cuMemPoolSetAttribute",
          "With a threshold of 0 what was freed is given back at the next synchronisation.") {
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool();
  free(allocate(8 * kMiB, pool, stream), stream);
  finish(stream);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_OK(api.mem_pool_destroy(pool));
}

STATEMENT(C154, StreamOrderedMemory, APlainFreeFreesItToo, "Driver API, Memory Management, cuMemFree",
          "cuMemFree frees stream-ordered memory, too, once all use of it has completed.") {
  const CUstream stream = make_stream();
  const CUdeviceptr memory = allocate(4096, stream);
  fill(memory, 1, 4096, stream);
  finish(stream);
  EXPECT_OK(api.mem_free(memory));
}

STATEMENT(C155, StreamOrderedMemory, AFreedBlockIsReusedInItsStream,
          "Programming Guide, Stream Ordered Memory Allocator, Memory Reuse Policies",
          "In one stream memory that was freed can be allocated again at once, without new physical memory.") {
  const CUstream stream = make_stream();
  const CUmemoryPool pool = make_pool();
  const CUdeviceptr first = allocate(8 * kMiB, pool, stream);
  const cuuint64_t reserved = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  free(first, stream);
  const CUdeviceptr second = allocate(8 * kMiB, pool, stream);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), reserved);
  free(second, stream);
  finish(stream);
  EXPECT_OK(api.mem_pool_destroy(pool));
}

#undef SECTION

}  // namespace
}  // namespace cistern::conformance
