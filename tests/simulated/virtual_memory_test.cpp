#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

constexpr std::size_t kGranule = 2 * MiB;

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

class VirtualMemoryTest : public ::testing::Test {
 protected:
  CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(api.mem_address_reserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  CUmemGenericAllocationHandle create(std::size_t bytes, int device = 0) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = memory_of(device);
    EXPECT_EQ(api.mem_create(&handle, bytes, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  void map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle) {
    EXPECT_EQ(api.mem_map(address, bytes, 0, handle, 0), CUDA_SUCCESS);
  }
  CUresult allow(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                 int device = 0) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = flags;
    return api.mem_set_access(address, bytes, &access, 1);
  }
  CUresult fill(CUdeviceptr address, std::size_t bytes, CUstream stream = nullptr) {
    return api.memset_d8_async(address, 1, bytes, stream);
  }

  ReadyDriver ready{{.devices = 2, .capacity_bytes = 64 * MiB}};
  const DriverApi& api = ready.api;
};

TEST_F(VirtualMemoryTest, TwoAddressesOfOneHandleShowTheSameBytes) {
  const CUdeviceptr first = reserve(kGranule);
  const CUdeviceptr second = reserve(kGranule);
  const auto handle = create(kGranule);
  map(first, kGranule, handle);
  map(second, kGranule, handle);
  EXPECT_EQ(allow(first, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(allow(second, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), kGranule);
  std::strcpy(reinterpret_cast<char*>(first) + 4096, "the same bytes");
  EXPECT_STREQ(reinterpret_cast<const char*>(second) + 4096, "the same bytes");
}

TEST_F(VirtualMemoryTest, BytesStayWithTheHandleNotTheAddress) {
  const CUdeviceptr address = reserve(2 * kGranule);
  const auto one = create(kGranule);
  const auto two = create(kGranule);
  map(address, kGranule, one);
  map(address + kGranule, kGranule, two);
  EXPECT_EQ(allow(address, 2 * kGranule), CUDA_SUCCESS);
  auto* bytes = reinterpret_cast<unsigned char*>(address);
  std::memset(bytes, 1, kGranule);
  std::memset(bytes + kGranule, 2, kGranule);
  EXPECT_EQ(api.mem_unmap(address, 2 * kGranule), CUDA_SUCCESS);
  map(address, kGranule, two);
  map(address + kGranule, kGranule, one);
  EXPECT_EQ(allow(address, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(bytes[0], 2);
  EXPECT_EQ(bytes[2 * kGranule - 1], 1);
}

TEST_F(VirtualMemoryTest, CapacityIsCountedAtCreateAndHeldUntilReleasedAndUnmapped) {
  const CUdeviceptr address = reserve(4 * kGranule);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
  const auto handle = create(4 * kGranule);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * kGranule);
  map(address, 4 * kGranule, handle);
  EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * kGranule);
  EXPECT_EQ(api.mem_release(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(reserve(4 * kGranule), 4 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_unmap(address, 4 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);

  const auto unmapped_first = create(kGranule);
  map(address, kGranule, unmapped_first);
  EXPECT_EQ(api.mem_unmap(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), kGranule);
  EXPECT_EQ(api.mem_release(unmapped_first), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

TEST_F(VirtualMemoryTest, HandlesAndAllocationsShareTheCapacity) {
  const CUdeviceptr allocation = ready.allocate(60 * MiB);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = memory_of(0);
  EXPECT_EQ(api.mem_create(&handle, 6 * MiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(handle, 0u);
  create(4 * MiB);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(api.mem_alloc(&pointer, 1), CUDA_ERROR_OUT_OF_MEMORY);
  create(64 * MiB, 1);  // the other device has its own
  EXPECT_EQ(api.mem_free(allocation), CUDA_SUCCESS);
  create(60 * MiB);
}

TEST_F(VirtualMemoryTest, NewMemoryReadsAsZero) {
  const CUdeviceptr address = reserve(kGranule);
  for (int round = 0; round < 2; ++round) {
    const auto handle = create(kGranule);
    map(address, kGranule, handle);
    EXPECT_EQ(allow(address, kGranule), CUDA_SUCCESS);
    auto* bytes = reinterpret_cast<unsigned char*>(address);
    EXPECT_EQ(std::count(bytes, bytes + kGranule, 0), static_cast<std::ptrdiff_t>(kGranule));
    std::memset(bytes, 0xee, kGranule);
    EXPECT_EQ(api.mem_unmap(address, kGranule), CUDA_SUCCESS);
    EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
  }
}

TEST_F(VirtualMemoryTest, AHandleIsMappedWholeInsideAReservation) {
  const CUdeviceptr address = reserve(4 * kGranule);
  const auto handle = create(2 * kGranule);
  EXPECT_EQ(api.mem_map(address, kGranule, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(api.mem_map(address, kGranule, kGranule, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(api.mem_map(address, 3 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(address + 512, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(address + 3 * kGranule, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(address - kGranule, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(address, 2 * kGranule, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(address, 2 * kGranule, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
  map(address + kGranule, 2 * kGranule, handle);
  EXPECT_EQ(api.mem_map(address, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);  // overlaps
  EXPECT_EQ(api.mem_map(address + 2 * kGranule, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, UnmapTakesOnlyWholeMappings) {
  const CUdeviceptr address = reserve(6 * kGranule);
  const auto pair = create(2 * kGranule);
  const auto single = create(kGranule);
  map(address, 2 * kGranule, pair);
  map(address + 2 * kGranule, kGranule, single);
  EXPECT_EQ(api.mem_unmap(address, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_unmap(address + kGranule, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_unmap(address, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_unmap(address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allow(address, 3 * kGranule), CUDA_SUCCESS);  // all of it is still there
  EXPECT_EQ(api.mem_unmap(address, 3 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_unmap(address, 3 * kGranule), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, AReservationIsFreedWholeAndEmpty) {
  const CUdeviceptr address = reserve(4 * kGranule);
  const auto handle = create(kGranule);
  map(address + kGranule, kGranule, handle);
  EXPECT_EQ(api.mem_address_free(address, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_unmap(address + kGranule, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_address_free(address, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_address_free(address + kGranule, 3 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_address_free(address, 4 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_address_free(address, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reserve(4 * kGranule), address);
}

TEST_F(VirtualMemoryTest, ReservationsHonourAlignmentAndAWishThatCanBeMet) {
  reserve(kGranule);
  CUdeviceptr aligned = 0;
  EXPECT_EQ(api.mem_address_reserve(&aligned, kGranule, 32 * MiB, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(aligned % (32 * MiB), 0u);
  CUdeviceptr wished = 0;
  EXPECT_EQ(api.mem_address_reserve(&wished, kGranule, 0, aligned + 8 * kGranule, 0), CUDA_SUCCESS);
  EXPECT_EQ(wished, aligned + 8 * kGranule);
  CUdeviceptr elsewhere = 0;
  EXPECT_EQ(api.mem_address_reserve(&elsewhere, kGranule, 0, wished, 0), CUDA_SUCCESS);
  EXPECT_NE(elsewhere, wished);
}

TEST_F(VirtualMemoryTest, ArgumentsAreCheckedAsTheDriverDoes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(api.mem_address_reserve(&address, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_address_reserve(&address, kGranule + 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_address_reserve(&address, kGranule, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_address_reserve(&address, kGranule, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_address_reserve(&address, std::size_t{1} << 50, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp good = memory_of(0);
  EXPECT_EQ(api.mem_create(&handle, 1 * MiB, &good, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_create(&handle, 0, &good, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_create(&handle, kGranule, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  const CUmemAllocationProp absent = memory_of(2);
  EXPECT_EQ(api.mem_create(&handle, kGranule, &absent, 0), CUDA_ERROR_INVALID_VALUE);
  std::size_t granularity = 0;
  EXPECT_EQ(api.mem_get_allocation_granularity(&granularity, &good, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
  EXPECT_EQ(granularity, kGranule);
  EXPECT_EQ(api.mem_release(42), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr reserved = reserve(kGranule);
  EXPECT_EQ(allow(reserved, kGranule), CUDA_ERROR_INVALID_VALUE);  // nothing is mapped
  map(reserved, kGranule, create(kGranule));
  EXPECT_EQ(allow(reserved, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_set_access(reserved, kGranule, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, OnlyDevicesThatWereGivenAccessTouchIt) {
  const CUdeviceptr address = reserve(2 * kGranule);
  map(address, kGranule, create(kGranule));
  map(address + kGranule, kGranule, create(kGranule));
  const StreamHandle here = ready.driver.create_stream(0);
  const StreamHandle there = ready.driver.create_stream(1);
  EXPECT_EQ(fill(address, 1, here), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allow(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, kGranule, here), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, kGranule + 1, here), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fill(address, 1, there), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allow(address, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ, 1), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, 1, there), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.memcpy_async(ready.allocate(kGranule), address, kGranule, there), CUDA_SUCCESS);
  EXPECT_EQ(allow(address, kGranule, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, 1, here), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, UnmapWaitsForTheWorkOfTheMemorysDevice) {
  const CUdeviceptr address = reserve(kGranule);
  map(address, kGranule, create(kGranule, 1));
  std::vector<int> ran;
  ready.note(ready.driver.create_stream(0), ran, 0);
  ready.note(ready.driver.create_stream(1), ran, 1);
  EXPECT_EQ(api.mem_unmap(address, kGranule + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(ran.empty());
  EXPECT_EQ(api.mem_unmap(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(ran, std::vector<int>{1});
  EXPECT_EQ(ready.driver.host_synchronizations(), 1u);
}

TEST_F(VirtualMemoryTest, MappingsAreNoAllocations) {
  const CUdeviceptr address = reserve(kGranule);
  map(address, kGranule, create(kGranule));
  EXPECT_EQ(api.mem_free(address), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr allocation = ready.allocate(kGranule);
  EXPECT_EQ(api.mem_unmap(allocation, kGranule), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, ManyHandlesSideBySideAreOneRange) {
  constexpr std::size_t handles = 16;
  const CUdeviceptr address = reserve(handles * kGranule);
  std::vector<CUmemGenericAllocationHandle> created;
  for (std::size_t i = 0; i < handles; ++i) created.push_back(create(kGranule));
  std::reverse(created.begin(), created.end());  // so that no two neighbours are contiguous in memory
  for (std::size_t i = 0; i < handles; ++i) map(address + i * kGranule, kGranule, created[i]);
  EXPECT_EQ(allow(address, handles * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(fill(address, handles * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(api.stream_synchronize(nullptr), CUDA_SUCCESS);
  const auto* bytes = reinterpret_cast<const unsigned char*>(address);
  EXPECT_EQ(std::count(bytes, bytes + handles * kGranule, 1), static_cast<std::ptrdiff_t>(handles * kGranule));
}

TEST_F(VirtualMemoryTest, AccessIsToldByDeviceAndMapping) {
  const CUdeviceptr address = reserve(2 * kGranule);
  const auto access_of = [&](int device, CUdeviceptr at) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    unsigned long long flags = 99;
    EXPECT_EQ(api.mem_get_access(&flags, &location, at), CUDA_SUCCESS);
    return flags;
  };
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemLocation absent{CU_MEM_LOCATION_TYPE_DEVICE, 2};
  unsigned long long flags = 99;
  EXPECT_EQ(api.mem_get_access(&flags, &here, address), CUDA_ERROR_INVALID_VALUE);  // nothing is mapped
  map(address, kGranule, create(kGranule));
  map(address + kGranule, kGranule, create(kGranule));
  EXPECT_EQ(access_of(0, address), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(allow(address, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(allow(address + kGranule, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ), CUDA_SUCCESS);
  EXPECT_EQ(allow(address, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ, 1), CUDA_SUCCESS);
  EXPECT_EQ(access_of(0, address + kGranule - 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(access_of(0, address + kGranule), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(access_of(1, address), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(access_of(1, address + kGranule), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(api.mem_get_access(&flags, &absent, address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(flags, 99u);
}

TEST_F(VirtualMemoryTest, AHandleIsReleasedAsOftenAsItWasGiven) {
  const CUdeviceptr address = reserve(kGranule);
  const CUmemGenericAllocationHandle handle = create(kGranule);
  CUmemGenericAllocationHandle again = 0;
  EXPECT_EQ(api.mem_retain_allocation_handle(&again, reinterpret_cast<void*>(address)), CUDA_ERROR_INVALID_VALUE);
  map(address, kGranule, handle);
  EXPECT_EQ(api.mem_retain_allocation_handle(&again, reinterpret_cast<void*>(address + 1000)), CUDA_SUCCESS);
  EXPECT_EQ(again, handle);
  EXPECT_EQ(api.mem_unmap(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), kGranule);
  EXPECT_EQ(api.mem_release(again), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
  EXPECT_EQ(api.mem_release(handle), CUDA_ERROR_INVALID_VALUE);
}

// The mapping alone keeps the memory; it gives the handle back to who asks for it.
TEST_F(VirtualMemoryTest, AReleasedHandleIsGoneWhileItsMappingStays) {
  const CUdeviceptr address = reserve(2 * kGranule);
  CUmemGenericAllocationHandle handle = create(kGranule, 1);
  CUmemAllocationProp properties{};
  map(address, kGranule, handle);
  EXPECT_EQ(api.mem_get_allocation_properties(&properties, handle), CUDA_SUCCESS);
  EXPECT_EQ(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(properties.location.id, 1);
  EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
  EXPECT_EQ(api.mem_release(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_map(address + kGranule, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_get_allocation_properties(&properties, handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.mem_retain_allocation_handle(&handle, reinterpret_cast<void*>(address)), CUDA_SUCCESS);
  map(address + kGranule, kGranule, handle);
  EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
}

TEST(VirtualMemoryWithoutBacking, KeepsTheSameAccounts) {
  ReadyDriver ready({.capacity_bytes = 64 * MiB, .backing = Backing::none});
  const CUmemAllocationProp properties = memory_of(0);
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(ready.api.mem_address_reserve(&address, 64 * MiB, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_create(&handle, 64 * MiB, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_map(address, 64 * MiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 64 * MiB);
  EXPECT_EQ(ready.api.mem_unmap(address, 64 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_release(handle), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_address_free(address, 64 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

}  // namespace
}  // namespace cistern
