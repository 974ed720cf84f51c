// Addresses of paged memory: they do not grow with streams, and where the driver has none left segments serve.

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "allocator/device_heaps.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

class PagedAddresses : public ::testing::Test {
 protected:
  explicit PagedAddresses(std::size_t capacity = 4096 * kMega)
      : driver({.capacity_bytes = capacity, .backing = Backing::none, .races = RaceMode::collect}),
        allocator({.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:paged")}) {}

  void* take(std::size_t bytes, StreamHandle stream = nullptr) { return allocator.allocate(bytes, stream); }
  void give(void* block) { allocator.deallocate(block); }
  [[nodiscard]] MemoryStats stats() const { return allocator.memory_stats(); }
  // All that the driver has left, in pieces of `bytes`.
  void reserve_the_rest(std::size_t bytes) {
    CUdeviceptr address = 0;
    while (driver.api().mem_address_reserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS)
      reserved.emplace_back(address, bytes);
  }
  void give_addresses_back() {
    for (const auto& [address, bytes] : reserved)
      EXPECT_EQ(driver.api().mem_address_free(address, bytes), CUDA_SUCCESS);
    reserved.clear();
  }
  void judge() {
    allocator.check();
    EXPECT_EQ(driver.used_bytes(), static_cast<std::size_t>(stats().reserved_bytes.all.current));
    std::int64_t shown = 0;
    for (const SegmentInfo& segment : allocator.snapshot().segments) shown += segment.total_size;
    EXPECT_EQ(shown, stats().reserved_bytes.all.current);
    for (const RaceReport& report : driver.race_reports()) ADD_FAILURE() << report.to_string();
  }

  SimulatedDriver driver;
  CachingAllocator allocator;
  std::vector<std::pair<CUdeviceptr, std::size_t>> reserved;
};

TEST_F(PagedAddresses, DoNotGrowWithStreams) {
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) {
    const StreamHandle stream = driver.create_stream();
    blocks.push_back(take(3 * kMega, stream));
    give(take(kMega, stream));
  }
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 8U);
  EXPECT_EQ(stats().segment.all.allocated, 0);
  judge();
  for (void* block : blocks) give(block);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
  EXPECT_EQ(driver.calls("cuMemAddressFree"), 8U);
  judge();
}

TEST_F(PagedAddresses, WithoutAnySegmentsServe) {
  reserve_the_rest(2 * kMega << 10);
  reserve_the_rest(2 * kMega);
  const StreamHandle side = driver.create_stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(take(30 * kMega, i % 2 == 0 ? nullptr : side));
  EXPECT_EQ(stats().segment.all.current, 10);
  EXPECT_EQ(stats().num_ooms, 0);
  EXPECT_EQ(stats().num_alloc_retries, 0);
  judge();
  for (void* block : blocks) give(block);
  const auto again = [&] {
    for (int i = 0; i < 10; ++i) blocks[static_cast<std::size_t>(i)] = take(30 * kMega, i % 2 == 0 ? nullptr : side);
    for (void* block : blocks) give(block);
  };
  const std::uint64_t asked = driver.calls("cuMemAddressReserve");
  again();
  {
    const TagScope tag("with the heap's lock");
    again();
  }
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), asked) << "what segments served they serve again";
  EXPECT_EQ(driver.calls("cuMemAlloc"), 10U);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
  give_addresses_back();
  void* paged = take(30 * kMega);
  EXPECT_EQ(stats().segment.all.current, 0) << "there are addresses again";
  give(paged);
  judge();
}

// Gathers use the one arena up; then segments serve beside what is mapped, and the host's order of things is sound.
class PagedAddressesOfOneArena : public PagedAddresses {
 protected:
  PagedAddressesOfOneArena() : PagedAddresses(64 * kMega) {}
};

TEST_F(PagedAddressesOfOneArena, WhereTheyAreUsedUpSegmentsServeBesidePages) {
  std::mt19937_64 random(20261123);
  const std::vector<StreamHandle> streams = {nullptr, driver.create_stream()};
  std::vector<std::pair<void*, std::size_t>> live;
  std::size_t sum = 0;
  void* first = take(kMega);
  EXPECT_EQ(driver.calls("cuMemAddressReserve"), 1U);
  reserve_the_rest(2 * kMega);
  for (int i = 0; i < 1000; ++i) {
    while (sum > 12 * kMega || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      give(live.back().first);
      sum -= live.back().second;
      live.pop_back();
    }
    const std::size_t bytes = 1 + random() % (6 * kMega);
    const StreamHandle stream = streams[random() % 8 == 0 ? 1 : 0];
    live.emplace_back(take(bytes, stream), bytes);
    driver.launch(stream, {}, {{live.back().first, bytes}}, std::chrono::milliseconds(1), [] {});
    sum += bytes;
    if (random() % 10 == 0) driver.run_until_idle();
    if (i % 10 == 0) judge();
    if (HasFailure()) FAIL() << "operation " << i;
  }
  EXPECT_GT(stats().segment.all.allocated, 0);
  EXPECT_EQ(stats().num_ooms, 0);
  for (const auto& block : live) give(block.first);
  give(first);
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
  judge();
}

TEST(PagedWithoutAddresses, EffectiveConfigSaysSo) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  DriverApi api = driver.api();
  api.mem_address_reserve = {
      &driver, [](void*, CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long) -> CUresult {
        return CUDA_ERROR_OUT_OF_MEMORY;
      }};
  Contexts contexts(api);
  DeviceHeaps heaps(contexts, AllocatorOptions::parse("oom_dump:off,policy:paged"));
  static_cast<void>(heaps.allocate(30 * kMega, {}, 0));
  EXPECT_EQ(heaps.stats(0).segment.all.current, 1);
  EXPECT_NE(heaps.describe_options().find("without effect: policy:paged on device 0: for 1 requests"),
            std::string::npos);
}

// Calls somebody when addresses went back, before the caller hears of it.
class AddressesGoBack {
 public:
  explicit AddressesGoBack(const DriverApi& inner) : inner_(inner), api_(inner) {
    api_.mem_address_free = {this, [](void* self, CUdeviceptr address, std::size_t bytes) {
                               auto& mine = *static_cast<AddressesGoBack*>(self);
                               const CUresult result = mine.inner_.mem_address_free(address, bytes);
                               if (mine.then) std::exchange(mine.then, {})();
                               return result;
                             }};
  }
  [[nodiscard]] const DriverApi& api() const { return api_; }

  std::function<void()> then;

 private:
  const DriverApi& inner_;
  DriverApi api_;
};

// Steps that are followed know addresses alone, and where these lie is looked up when they are carried out.
TEST(PagedAddressesThatGoBack, AreAnotherArenasBeforeTheHeapHearsOfIt) {
  SimulatedDriver driver({.capacity_bytes = 4096 * kMega, .backing = Backing::none});
  AddressesGoBack going(driver.api());
  CachingAllocator allocator({.driver = &going.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:paged")});
  void* const first = allocator.allocate(kMega);
  allocator.deallocate(first);
  std::vector<void*> blocks;
  const auto take_to = [&](std::size_t count) {
    while (blocks.size() < count) blocks.push_back(allocator.allocate((blocks.size() + 1) * 100'000));
  };
  const auto give_all = [&] {
    for (void* block : blocks) allocator.deallocate(block);
    blocks.clear();
  };
  bool is_there_again = false;
  going.then = [&] {
    for (int round = 0; round < 400; ++round) {
      take_to(10);
      is_there_again = is_there_again || blocks.front() == first;
      give_all();
    }
    take_to(5);
    allocator.check();  // takes the heap's lock, and finds all carried out
  };
  allocator.empty_cache();
  EXPECT_TRUE(is_there_again) << "the driver chose other addresses: nothing was tested";
  allocator.check();
  EXPECT_EQ(allocator.memory_stats().requested_bytes.all.current, 1'500'000);
  give_all();
  allocator.empty_cache();
  EXPECT_EQ(driver.used_bytes(), 0U);
}

}  // namespace
}  // namespace cistern
