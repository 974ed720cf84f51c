// Page-locked host memory, what copies read when, and peers.
#include <cistern/error.h>

#include <gtest/gtest.h>

#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::address_of;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(HostMemory, ACopyReadsPageLockedMemoryWhenItRunsAndPageableMemoryAtTheCall) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  void* allocated = nullptr;
  EXPECT_EQ(ready.api.mem_host_alloc(&allocated, 4, 0), CUDA_SUCCESS);
  auto* locked = static_cast<int*>(allocated);
  int pageable = 1;
  *locked = 1;
  const CUdeviceptr memory = ready.allocate(8);
  EXPECT_EQ(ready.api.memcpy_async(memory, address_of(&pageable), 4, stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(memory + 4, address_of(locked), 4, stream), CUDA_SUCCESS);
  pageable = 2;
  *locked = 2;
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<const int*>(memory)[0], 1);
  EXPECT_EQ(reinterpret_cast<const int*>(memory)[1], 2);
}

TEST(HostMemory, AnAllocationIsFreedOnceAndOnlyItself) {
  ReadyDriver ready;
  void* pointer = nullptr;
  int own = 0;
  EXPECT_EQ(ready.api.mem_host_alloc(&pointer, 100, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_host_alloc(&pointer, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_host_alloc(&pointer, 100, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  unsigned flags = 0;
  EXPECT_EQ(ready.api.mem_host_get_flags(&flags, static_cast<char*>(pointer) + 50), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_PORTABLE});
  CUdeviceptr on_device = 0;
  EXPECT_EQ(ready.api.mem_host_get_device_pointer(&on_device, pointer, 0), CUDA_SUCCESS);
  EXPECT_EQ(on_device, address_of(pointer));
  EXPECT_EQ(ready.api.mem_free_host(&own), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_free_host(static_cast<char*>(pointer) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_free_host(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free_host(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST(HostMemory, ARangeIsRegisteredOnce) {
  ReadyDriver ready;
  std::vector<char> own(8192);
  EXPECT_EQ(ready.api.mem_host_register(own.data(), 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_host_register(own.data() + 4095, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(ready.api.mem_host_register(own.data() + 4096, 10, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_host_unregister(own.data() + 1), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(ready.api.mem_free_host(own.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_host_unregister(own.data()), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_host_unregister(own.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST(HostMemory, NoPartOfARangeIsRegisteredTwice) {
  ReadyDriver ready;
  std::vector<char> own(4000);
  const auto add = [&](std::size_t begin, std::size_t end) {
    return ready.api.mem_host_register(own.data() + begin, end - begin, 0);
  };
  EXPECT_EQ(add(1000, 2000), CUDA_SUCCESS);
  EXPECT_EQ(add(500, 1001), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);   // its first byte
  EXPECT_EQ(add(1999, 3000), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);  // its last byte
  EXPECT_EQ(add(500, 3000), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(1400, 1500), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(add(500, 1000), CUDA_SUCCESS);
  EXPECT_EQ(add(2000, 3000), CUDA_SUCCESS);
}

TEST(HostMemory, FreedUnderACopyItFailsTheDevice) {
  ReadyDriver ready;
  void* pointer = nullptr;
  EXPECT_EQ(ready.api.mem_host_alloc(&pointer, 100, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memcpy_async(ready.allocate(100), address_of(pointer), 100, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free_host(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(SimulatedPeers, AccessIsOneWayAndEnabledOnce) {
  ReadyDriver ready(SimulatedOptions::parse("devices=3,peers=0-1,capacity=16MiB"));
  int can_access = -1;
  EXPECT_EQ(ready.api.device_can_access_peer(&can_access, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(can_access, 1);
  EXPECT_EQ(ready.api.device_can_access_peer(&can_access, 1, 2), CUDA_SUCCESS);
  EXPECT_EQ(can_access, 0);
  CUcontext contexts[3];
  for (int device = 0; device < 3; ++device) {
    EXPECT_EQ(ready.api.primary_ctx_retain(&contexts[device], device), CUDA_SUCCESS);
  }
  const CUdeviceptr memory = ready.allocate(1000);
  const MemoryRange range{reinterpret_cast<const void*>(memory), 1000};
  const StreamHandle there = ready.driver.create_stream(1);
  ready.use(1);
  EXPECT_EQ(ready.api.ctx_enable_peer_access(contexts[1], 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(ready.api.ctx_enable_peer_access(contexts[0], 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.ctx_enable_peer_access(contexts[2], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(ready.api.ctx_disable_peer_access(contexts[0]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_THROW(ready.driver.launch(there, {range}, {}, 0ns, {}), InvalidArgument);
  EXPECT_EQ(ready.api.ctx_enable_peer_access(contexts[0], 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_enable_peer_access(contexts[0], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ready.driver.launch(there, {range}, {}, 0ns, {});
  EXPECT_EQ(ready.api.ctx_disable_peer_access(contexts[0]), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_synchronize(there), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(SimulatedPeers, PeerCopiesNeedNoAccessButTheRightContexts) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB, .peers = std::vector<std::pair<int, int>>{}});
  CUcontext contexts[2];
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(ready.api.primary_ctx_retain(&contexts[device], device), CUDA_SUCCESS);
  }
  const CUdeviceptr here = ready.allocate(100);
  ready.use(1);
  const CUdeviceptr there = ready.allocate(100);
  EXPECT_EQ(ready.api.memset_d16_async(there, 0x1234, 50, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.memset_d16_async(there + 1, 0, 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memcpy_peer_async(here, contexts[1], there, contexts[1], 100, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.memcpy_peer_async(here, contexts[0], there, contexts[1], 100, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<const unsigned short*>(here)[49], 0x1234);
}

TEST(PointerAttributes, TellWhatMemoryAnAddressLiesIn) {
  ReadyDriver ready;
  const CUdeviceptr memory = ready.allocate(1000);
  unsigned type = 0;
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  void* host = nullptr;
  EXPECT_EQ(ready.api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 999), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ready.api.pointer_get_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, memory + 9), CUDA_SUCCESS);
  EXPECT_EQ(start, memory);
  EXPECT_EQ(ready.api.pointer_get_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_EQ(ready.api.pointer_get_attribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, memory),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 1000),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_get_address_range(&start, &bytes, memory + 5), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_get_address_range(&start, &bytes, address_of(&type)), CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace cistern
