// Many mappings of the device within what the host allows.
#include "runtime/simulated/host_mappings.h"

#include <cistern/error.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "runtime/simulated/virtual_memory.h"
#include "tests/simulated/driver_fixture.h"

namespace cistern::simulated {
namespace {

using cistern::testing::GiB;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

CUmemAllocationProp memory_of_device() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

CUmemAccessDesc full_access() {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

std::size_t mappings_of_this_process() {
  std::ifstream maps("/proc/self/maps");
  std::size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

TEST(HostMappings, AHundredThousandAliasesOfOneHandleWork) {
  constexpr std::size_t aliases = 100'000;
  ReadyDriver ready({.capacity_bytes = std::size_t{64} << 30});
  const CUmemAllocationProp properties = memory_of_device();
  const CUmemAccessDesc access = full_access();
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(ready.api.mem_address_reserve(&base, aliases * kGranule, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(ready.api.mem_create(&handle, kGranule, &properties, 0), CUDA_SUCCESS);
  for (std::size_t i = 0; i < aliases; ++i) {
    ASSERT_EQ(ready.api.mem_map(base + i * kGranule, kGranule, 0, handle, 0), CUDA_SUCCESS) << i;
    ASSERT_EQ(ready.api.mem_set_access(base + i * kGranule, kGranule, &access, 1), CUDA_SUCCESS) << i;
  }
  for (std::size_t i = 0; i < aliases; i += 3) {
    ASSERT_EQ(ready.api.memset_d32_async(base + i * kGranule, static_cast<unsigned>(i), 1, nullptr), CUDA_SUCCESS);
    unsigned seen = 0;
    const CUdeviceptr other = base + (aliases - 1 - i) * kGranule;
    ASSERT_EQ(ready.api.memcpy(reinterpret_cast<CUdeviceptr>(&seen), other, sizeof seen), CUDA_SUCCESS);
    ASSERT_EQ(seen, i);
  }
  EXPECT_LT(mappings_of_this_process(), 3 * host_mapping_budget());
  EXPECT_EQ(ready.driver.used_bytes(), kGranule);
  EXPECT_EQ(ready.api.mem_unmap(base, aliases * kGranule), CUDA_SUCCESS);
}

// Leaves this process that much address space beside what it has.
void leave_address_space(std::size_t bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  if (pages == 0 || ::getrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  limit.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + bytes;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::exit(3);
}

TEST(HostPagesDeathTest, WhereTheHostHasLessThanIsWantedTheFirstHalfThatItGivesIsTaken) {
  EXPECT_EXIT(
      {
        HostPages pages(Backing::memory);
        leave_address_space(128 * GiB);
        const AddressWindow window = pages.reserve_for_mappings(64 * MiB, 512 * GiB);
        if (window.end - window.begin != 64 * GiB) std::_Exit(1);
        try {
          static_cast<void>(pages.reserve_for_mappings(100 * GiB, 512 * GiB));
        } catch (const InvalidArgument&) {
          std::_Exit(0);
        }
        std::_Exit(4);
      },
      ::testing::ExitedWithCode(0), "");
}

class SmallBudget : public ::testing::Test {
 protected:
  static constexpr std::size_t kMost = 4;
  SmallBudget() {
    EXPECT_EQ(memory.reserve(&base, 64 * kGranule, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(memory.create(&handle, kGranule, &properties, 0), CUDA_SUCCESS);
  }
  void map(std::size_t place) {
    EXPECT_EQ(memory.map(at(place), kGranule, 0, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(memory.set_access(at(place), kGranule, &access, 1), CUDA_SUCCESS);
  }
  [[nodiscard]] CUdeviceptr at(std::size_t place) const { return base + place * kGranule; }
  DeviceCapacity capacity{128 * MiB};
  HostPages pages{Backing::memory};
  VirtualMemory memory{pages.reserve_for_mappings(128 * MiB, 128 * MiB), {&capacity}, pages, 1, kMost};
  const CUmemAllocationProp properties = memory_of_device();
  const CUmemAccessDesc access = full_access();
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
};

TEST_F(SmallBudget, WhatIsTouchedLeastRecentlyIsHidden) {
  for (std::size_t place = 0; place < 32; ++place) map(place);
  EXPECT_EQ(memory.host_mappings(), kMost);
  std::memset(reinterpret_cast<void*>(at(0)), 5, kGranule);  // made while there was room
  for (std::size_t place = 31; place > 0; --place) {
    ASSERT_TRUE(memory.show(at(place), 1));
    ASSERT_EQ(*reinterpret_cast<const char*>(at(place)), 5);
    EXPECT_LE(memory.host_mappings(), kMost);
  }
}

TEST_F(SmallBudget, WhatIsHeldStays) {
  for (std::size_t place = 0; place < 32; ++place) map(place);
  ASSERT_TRUE(memory.show(at(9), kGranule));
  memory.hold(at(9), kGranule);
  for (std::size_t place = 10; place < 32; ++place) ASSERT_TRUE(memory.show(at(place), 1));
  *reinterpret_cast<char*>(at(9)) = 3;  // would crash
  memory.release_hold(at(9), kGranule);
  EXPECT_EQ(*reinterpret_cast<const char*>(at(31)), 3);
}

TEST_F(SmallBudget, NeighboursInAddressAndMemoryAreOneMapping) {
  for (std::size_t place = 0; place < 16; ++place) {
    CUmemGenericAllocationHandle own = 0;
    ASSERT_EQ(memory.create(&own, kGranule, &properties, 0), CUDA_SUCCESS);
    ASSERT_EQ(memory.map(at(place), kGranule, 0, own, 0), CUDA_SUCCESS);
    ASSERT_EQ(memory.set_access(at(place), kGranule, &access, 1), CUDA_SUCCESS);
  }
  EXPECT_EQ(memory.host_mappings(), 1u);
  EXPECT_EQ(memory.unmap(at(5), kGranule), CUDA_SUCCESS);
  EXPECT_EQ(memory.host_mappings(), 2u);
}

}  // namespace
}  // namespace cistern::simulated
