// Strided work below the collectives: how it is simplified, which bytes it touches, and what the driver refuses.

#include <cistern/error.h>
#include <cistern/simulated.h>
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "runtime/driver_api.h"
#include "runtime/strided_values.h"

namespace cistern {
namespace {

using Numbers = std::vector<std::int64_t>;

StridedWork work_of(const Numbers& extents, const Numbers& to, const Numbers& from) {
  StridedWork work{.element = Element::u32, .rank = static_cast<std::uint32_t>(extents.size()), .count = 1};
  for (std::size_t d = 0; d < extents.size(); ++d) {
    work.extents[d] = static_cast<std::uint64_t>(extents[d]);
    work.destination_strides[d] = to[d];
    work.source_strides[d] = from[d];
    work.count *= work.extents[d];
  }
  return work;
}

TEST(StridedWorks, AreSimplifiedToTheFewestExtents) {
  const auto rank_of = [](const Numbers& extents, const Numbers& to, const Numbers& from) {
    StridedWork work = work_of(extents, to, from);
    simplify(work);
    EXPECT_EQ(is_plain_run(work),
              work.rank == 0 || (work.rank == 1 && work.destination_strides[0] == 1 && work.source_strides[0] == 1));
    return work.rank;
  };
  EXPECT_EQ(rank_of({2, 3, 4}, {12, 4, 1}, {12, 4, 1}), 1U);
  EXPECT_EQ(rank_of({2, 3, 4}, {1, 8, 2}, {1, 8, 2}), 1U);  // in another order of both
  EXPECT_EQ(rank_of({2, 3, 4}, {12, 4, 1}, {24, 8, 2}), 1U);
  EXPECT_EQ(rank_of({2, 3, 4}, {12, 4, 1}, {1, 8, 2}), 2U);
  EXPECT_EQ(rank_of({1, 5, 1}, {7, 1, 9}, {8, 1, 2}), 1U);
  EXPECT_EQ(rank_of({1, 1}, {3, 4}, {5, 6}), 0U);
  EXPECT_EQ(rank_of({2, 3}, {3, 1}, {0, 0}), 1U);
}

TEST(StridedWorks, TouchTheBytesOfTheirElements) {
  const auto ranges = [](const Numbers& extents, const Numbers& strides, std::size_t limit) {
    const StridedWork work = work_of(extents, strides, strides);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
    for (const ByteRange& range : ranges_of(1000, work, work.source_strides, limit))
      all.emplace_back(range.first, range.end);
    return all;
  };
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(ranges({2, 3}, {3, 1}, 10), (Ranges{{1000, 1024}}));
  EXPECT_EQ(ranges({2, 3}, {1, 2}, 10), (Ranges{{1000, 1024}}));
  EXPECT_EQ(ranges({2, 3}, {10, 1}, 10), (Ranges{{1000, 1012}, {1040, 1052}}));
  EXPECT_EQ(ranges({2, 2, 2}, {20, 5, 2}, 10).size(), 8U);
  EXPECT_EQ(ranges({2, 2, 2}, {20, 5, 2}, 7), (Ranges{{1000, 1112}}));
  EXPECT_EQ(ranges({4, 3}, {0, 1}, 10), (Ranges{{1000, 1012}}));
  EXPECT_EQ(ranges({4, 0}, {1, 1}, 10), Ranges());
  EXPECT_EQ(ranges({}, {}, 10), (Ranges{{1000, 1004}}));
}

TEST(StridedWorks, OfHalvesRoundToTheNearest) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((bits & 0x7fff) > 0x7c00) continue;  // no number
    ASSERT_EQ(half_of_float(float_of_half(half)), half);
    if ((bits & 0x7fff) >= 0x7bff) continue;
    // Half way to the next one: to the even of the two.
    const float here = float_of_half(half);
    const float next = float_of_half(static_cast<std::uint16_t>(bits + 1));
    ASSERT_EQ(half_of_float((here + next) / 2), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(half_of_float(here * 0.75F + next * 0.25F), bits) << bits;
  }
  EXPECT_EQ(half_of_float(65519.0F), 0x7bff);
  EXPECT_EQ(half_of_float(65520.0F), 0x7c00);
  EXPECT_EQ(half_of_float(1e-9F), 0);
  EXPECT_EQ(half_of_float(__builtin_nanf("")) & 0x7e00, 0x7e00);
  EXPECT_EQ(bfloat_of_float(__builtin_nanf("")) & 0x7fc0, 0x7fc0);
  EXPECT_EQ(bfloat_of_float(3.4e38F), 0x7f80);  // above the largest
}

class StridedOnDriver : public ::testing::Test {
 protected:
  explicit StridedOnDriver(Backing backing = Backing::memory)
      : driver({.capacity_bytes = 1 << 26, .backing = backing}) {
    CUcontext context = nullptr;
    EXPECT_EQ(api.init(0), CUDA_SUCCESS);
    EXPECT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
    EXPECT_EQ(api.mem_alloc(&memory, 4096), CUDA_SUCCESS);
  }
  // From the memory's second half to its first.
  StridedWork work(std::int64_t count) const {
    StridedWork made = work_of({count}, {1}, {1});
    made.destination = memory;
    made.source = memory + 2048;
    return made;
  }
  SimulatedDriver driver;
  const DriverApi& api = driver.api();
  CUdeviceptr memory = 0;
};

TEST_F(StridedOnDriver, IsRefusedWhereItMayNotTouch) {
  EXPECT_EQ(api.strided(work(512), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.strided(work(1 << 20), nullptr), CUDA_ERROR_INVALID_VALUE);
  StridedWork wrong = work(4);
  wrong.destination += 2;
  EXPECT_EQ(api.strided(wrong, nullptr), CUDA_ERROR_INVALID_VALUE);
  wrong = work(4);
  std::vector<std::uint32_t> pageable(4);
  wrong.source = reinterpret_cast<CUdeviceptr>(pageable.data());
  EXPECT_EQ(api.strided(wrong, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.strided(work(0), nullptr), CUDA_SUCCESS);
  EXPECT_NE(api.strided(work(4), reinterpret_cast<CUstream>(std::uintptr_t{77})), CUDA_SUCCESS);
  CUresult inside = CUDA_SUCCESS;
  driver.launch(nullptr, {}, {}, {}, [&] { inside = api.strided(work(4), nullptr); });
  driver.run_until_idle();
  EXPECT_EQ(inside, CUDA_ERROR_NOT_PERMITTED);
  driver.shut_down();
  EXPECT_EQ(api.strided(work(4), nullptr), CUDA_ERROR_DEINITIALIZED);
}

class StridedOnAccounts : public StridedOnDriver {
 protected:
  StridedOnAccounts() : StridedOnDriver(Backing::none) {}
};

TEST_F(StridedOnAccounts, TouchesNothing) {
  EXPECT_EQ(api.strided(work(512), nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(api.strided(work(1 << 20), nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(Bandwidths, AreOfVirtualTime) {
  SimulatedDriver driver({.devices = 2,
                          .capacity_bytes = 1 << 26,
                          .peer_bandwidth = 1'000'000,
                          .host_bandwidth = 500'000,
                          .memory_bandwidth = 2'000'000});
  const DriverApi& api = driver.api();
  CUcontext contexts[2] = {};
  CUdeviceptr memory[2] = {};
  EXPECT_EQ(api.init(0), CUDA_SUCCESS);
  for (int device = 1; device >= 0; --device) {
    EXPECT_EQ(api.primary_ctx_retain(&contexts[device], device), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_set_current(contexts[device]), CUDA_SUCCESS);
    EXPECT_EQ(api.mem_alloc(&memory[device], 4096), CUDA_SUCCESS);
  }
  std::vector<unsigned char> host(1000);
  const auto on_host = reinterpret_cast<CUdeviceptr>(host.data());
  const auto takes = [&](const auto& call) {
    const auto before = driver.virtual_time();
    EXPECT_EQ(call(), CUDA_SUCCESS);
    EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
    return std::chrono::duration_cast<std::chrono::microseconds>(driver.virtual_time() - before).count();
  };
  EXPECT_EQ(takes([&] { return api.memcpy_async(memory[0], on_host, 1000, nullptr); }), 2000);
  EXPECT_EQ(takes([&] { return api.memcpy_async(on_host, memory[0], 1000, nullptr); }), 2000);
  EXPECT_EQ(takes([&] { return api.memcpy_async(memory[0], memory[0] + 2000, 1000, nullptr); }), 500);
  EXPECT_EQ(takes([&] { return api.memset_d8_async(memory[0], 1, 1000, nullptr); }), 500);
  EXPECT_EQ(takes([&] { return api.fill_random({.destination = memory[0], .count = 250}, nullptr); }), 500);
  EXPECT_EQ(takes([&] { return api.memcpy_peer_async(memory[1], contexts[1], memory[0], contexts[0], 1000, nullptr); }),
            1000);
  StridedWork work = work_of({250}, {1}, {1});
  work.destination = memory[0];
  work.source = memory[0] + 2000;
  EXPECT_EQ(takes([&] { return api.strided(work, nullptr); }), 500);
}

}  // namespace
}  // namespace cistern
