#include "runtime/simulated/device_memory.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern::simulated {
namespace {

using cistern::testing::GiB;
using cistern::testing::KiB;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(DeviceMemory, AllocationsTakeWholeGranulesLowestAddressFirst) {
  ReadyDriver ready;
  const CUdeviceptr a = ready.allocate(1 * MiB);
  const CUdeviceptr b = ready.allocate(5 * MiB);
  const CUdeviceptr c = ready.allocate(2 * MiB);
  EXPECT_EQ(b - a, 2 * MiB);
  EXPECT_EQ(c - b, 6 * MiB);
  EXPECT_EQ(ready.driver.used_bytes(), 10 * MiB);

  EXPECT_EQ(ready.api.mem_free(b), CUDA_SUCCESS);
  EXPECT_EQ(ready.allocate(3 * MiB), b);  // the lowest hole that fits
  EXPECT_EQ(ready.allocate(4 * MiB), c + 2 * MiB);
  EXPECT_EQ(ready.allocate(2 * MiB), b + 4 * MiB);
}

TEST(DeviceMemory, SmallAllocationsShareGranules) {
  ReadyDriver ready;
  const CUdeviceptr a = ready.allocate(1);
  const CUdeviceptr b = ready.allocate(1000);
  const CUdeviceptr c = ready.allocate(512 * KiB);
  EXPECT_EQ(b - a, 512u);
  EXPECT_EQ(c - b, 1024u);
  EXPECT_EQ(ready.driver.used_bytes(), 2 * MiB);
  EXPECT_EQ(ready.allocate(2 * MiB), a + 2 * MiB);  // never in a shared granule

  EXPECT_EQ(ready.api.mem_free(b), CUDA_SUCCESS);
  EXPECT_EQ(ready.allocate(513), b);
  for (const CUdeviceptr pointer : {a, b, c}) EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 2 * MiB);
}

TEST(DeviceMemory, ScatteredGranulesServeALargeRequest) {
  ReadyDriver ready({.capacity_bytes = 16 * MiB});
  std::vector<CUdeviceptr> pointers;
  for (int i = 0; i < 8; ++i) pointers.push_back(ready.allocate(2 * MiB));
  for (std::size_t i = 0; i < 8; i += 2) EXPECT_EQ(ready.api.mem_free(pointers[i]), CUDA_SUCCESS);
  ready.allocate(8 * MiB);
  EXPECT_EQ(ready.driver.used_bytes(), 16 * MiB);
}

TEST(DeviceMemory, AFullDeviceRefusesAndChangesNothing) {
  ReadyDriver ready({.capacity_bytes = 16 * MiB});
  const CUdeviceptr held = ready.allocate(15 * MiB);
  CUdeviceptr refused = 42;
  EXPECT_EQ(ready.api.mem_alloc(&refused, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ready.api.mem_alloc(&refused, ~std::size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(refused, 42u);
  std::size_t free_bytes = 1;
  std::size_t total_bytes = 0;
  EXPECT_EQ(ready.api.mem_get_info(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes, 0u);
  EXPECT_EQ(total_bytes, 16 * MiB);
  EXPECT_EQ(ready.api.mem_free(held), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_alloc(&refused, 16 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.peak_used_bytes(), 16 * MiB);
}

TEST(DeviceMemory, FreeingWhatIsNotAnAllocationIsAnError) {
  ReadyDriver ready;
  const CUdeviceptr large = ready.allocate(4 * MiB);
  const CUdeviceptr small = ready.allocate(1024);
  for (const CUdeviceptr pointer : {CUdeviceptr{0}, CUdeviceptr{4096}, large + 512, large + 2 * MiB, small + 512}) {
    EXPECT_EQ(ready.api.mem_free(pointer), CUDA_ERROR_INVALID_VALUE) << pointer;
  }
  EXPECT_EQ(ready.api.mem_free(large), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free(large), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_free(small), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free(small), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
}

TEST(DeviceMemory, ZeroBytesAndNoPlaceForTheResultAreErrors) {
  ReadyDriver ready;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.mem_alloc(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(DeviceMemory, FreedBytesAreGoneWhenTheMemoryComesBack) {
  ReadyDriver ready;
  for (const std::size_t bytes : {std::size_t{700}, 9000 * KiB}) {
    const CUdeviceptr first = ready.allocate(bytes);
    std::memset(reinterpret_cast<void*>(first), 0xab, bytes);
    EXPECT_EQ(ready.api.mem_free(first), CUDA_SUCCESS);
    ASSERT_EQ(ready.allocate(bytes), first);
    const auto* memory = reinterpret_cast<const unsigned char*>(first);
    EXPECT_EQ(std::count(memory, memory + bytes, 0), static_cast<std::ptrdiff_t>(bytes));
  }
}

TEST(DeviceMemory, FreeWaitsForTheDevicesWork) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 64 * MiB});
  const CUdeviceptr pointer = ready.allocate(4 * MiB);
  std::vector<int> ran;
  ready.note(ready.driver.create_stream(0), ran, 0);
  ready.note(ready.driver.create_stream(1), ran, 1);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ran, std::vector<int>{0});  // the other device's work was left alone
  EXPECT_EQ(ready.driver.host_synchronizations(), 1u);
}

TEST(DeviceMemory, EachDeviceHasItsOwn) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUdeviceptr first = ready.allocate(16 * MiB);
  ready.use(1);
  ready.allocate(16 * MiB);
  EXPECT_EQ(ready.driver.used_bytes(0), 16 * MiB);
  EXPECT_EQ(ready.driver.used_bytes(1), 16 * MiB);
  EXPECT_EQ(ready.api.mem_free(first), CUDA_SUCCESS);  // whichever device is current
  EXPECT_EQ(ready.driver.used_bytes(0), 0u);
}

TEST(DeviceMemory, WithoutBackingAddressesArePlainNumbers) {
  ReadyDriver ready({.devices = 4, .capacity_bytes = 1024 * GiB, .backing = Backing::none});
  ReadyDriver again({.devices = 4, .capacity_bytes = 1024 * GiB, .backing = Backing::none});
  const CUdeviceptr pointer = ready.allocate(1000 * GiB);
  EXPECT_EQ(pointer, again.allocate(1000 * GiB));
  EXPECT_EQ(ready.api.memset_d8_async(pointer, 1, 1000 * GiB, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
}

// First fit as the rules are written, by walking every place from the lowest.
class NaiveMemory {
 public:
  explicit NaiveMemory(std::size_t granules) : capacity_(granules) {}

  std::optional<std::uint64_t> allocate(std::size_t bytes) {
    if (bytes >= kShareBelow) return allocate_large((bytes + kGranule - 1) / kGranule, bytes);
    const std::size_t rounded = (bytes + 511) / 512 * 512;
    for (const std::uint64_t granule : shared_) {
      for (std::uint64_t at = granule; at + rounded <= granule + kGranule; at += 512) {
        if (!overlaps(at, rounded)) return note(at, bytes);
      }
    }
    if (used() == capacity_) return std::nullopt;
    const std::uint64_t granule = lowest(1);
    shared_.insert(granule);
    return note(granule, bytes);
  }
  void release(std::uint64_t address) {
    live_.erase(address);
    const std::uint64_t granule = address / kGranule * kGranule;
    if (shared_.count(granule) != 0 && !overlaps(granule, kGranule)) shared_.erase(granule);
  }
  [[nodiscard]] std::size_t used() const {
    std::size_t granules = shared_.size();
    for (const auto& [address, bytes] : live_) {
      if (bytes >= kShareBelow) granules += (bytes + kGranule - 1) / kGranule;
    }
    return granules;
  }
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes) const {
    return std::any_of(live_.begin(), live_.end(), [&](const auto& block) {
      return address >= block.first && address + bytes <= block.first + block.second;
    });
  }

 private:
  std::optional<std::uint64_t> allocate_large(std::size_t granules, std::size_t bytes) {
    if (used() + granules > capacity_) return std::nullopt;
    return note(lowest(granules), bytes);
  }
  std::uint64_t note(std::uint64_t address, std::size_t bytes) {
    live_[address] = bytes;
    return address;
  }
  [[nodiscard]] std::uint64_t lowest(std::size_t granules) const {
    std::uint64_t at = 0;
    while (is_taken(at, granules * kGranule)) at += kGranule;
    return at;
  }
  [[nodiscard]] bool is_taken(std::uint64_t address, std::size_t bytes) const {
    for (const std::uint64_t granule : shared_) {
      if (granule >= address && granule < address + bytes) return true;
    }
    return overlaps(address, bytes);
  }
  [[nodiscard]] bool overlaps(std::uint64_t address, std::size_t bytes) const {
    return std::any_of(live_.begin(), live_.end(), [&](const auto& block) {
      const std::size_t unit = block.second >= kShareBelow ? kGranule : 512;
      return block.first < address + bytes && address < block.first + (block.second + unit - 1) / unit * unit;
    });
  }

  std::size_t capacity_;
  std::map<std::uint64_t, std::size_t> live_;
  std::set<std::uint64_t> shared_;
};

RC_GTEST_PROP(DeviceMemory, AnyProgramAgreesWithTheNaiveOne, ()) {
  constexpr std::size_t granules = 24;
  // Addresses far above what the program needs: a naive walk never runs out of them either.
  const AddressWindow window{0, 4 * granules * kGranule};
  DeviceCapacity capacity(granules * kGranule);
  HostPages pages(Backing::none);
  DeviceMemory memory(window, capacity, pages);
  NaiveMemory naive(granules);
  std::vector<std::uint64_t> live;
  const auto steps = *rc::gen::inRange(1, 150);
  for (int step = 0; step < steps; ++step) {
    if (live.empty() || *rc::gen::inRange(0, 5) < 3) {
      const auto bytes =
          *rc::gen::oneOf(rc::gen::inRange<std::size_t>(1, 4096), rc::gen::inRange<std::size_t>(100 * KiB, 2 * MiB),
                          rc::gen::inRange<std::size_t>(1 * MiB, 12 * MiB));
      const auto address = memory.allocate(bytes);
      RC_ASSERT(address == naive.allocate(bytes));
      if (address) live.push_back(*address);
    } else {
      const auto chosen = *rc::gen::inRange<std::size_t>(0, live.size());
      RC_ASSERT(memory.is_allocation(live[chosen]));
      memory.release(live[chosen]);
      naive.release(live[chosen]);
      RC_ASSERT(!memory.is_allocation(live[chosen]));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    RC_ASSERT(capacity.used() == naive.used() * kGranule);
    const auto address = *rc::gen::inRange<std::uint64_t>(0, granules * kGranule);
    const auto bytes = *rc::gen::inRange<std::size_t>(1, 4 * MiB);
    RC_ASSERT(memory.holds(address, bytes) == naive.holds(address, bytes));
  }
}

}  // namespace
}  // namespace cistern::simulated
