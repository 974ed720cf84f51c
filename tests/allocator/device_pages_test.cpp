#include "allocator/device_pages.h"
#include "tests/byte_units.h"

#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace cistern {
namespace {

constexpr PageSize kPage;
constexpr std::size_t kArena = 64 * kMega;

// Gathers as the placement makes them, over a page table of its own.
class DevicePagesTest : public ::testing::Test {
 protected:
  DevicePagesTest() {
    EXPECT_EQ(driver_.api().init(0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().ctx_set_current(context_), CUDA_SUCCESS);
    source_ = PageSource::make(driver_.api(), 0);
    pages_ = std::make_unique<DevicePages>(driver_.api(), *source_, kPage, kArena);
    static_cast<void>(table_.add_arena());
  }
  ~DevicePagesTest() override {
    EXPECT_EQ(driver_.api().ctx_set_current(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(driver_.api().primary_ctx_release(0), CUDA_SUCCESS);
  }

  // Of new handles of so many pages, behind which `again` are mapped once more.
  Gather gather_of(const std::vector<std::int32_t>& sizes, const std::vector<PageTable::Handle>& again = {}) {
    Gather gather;
    const auto add = [&](PageTable::Handle handle, bool is_new) {
      const std::int32_t pages = table_.pages_of(handle);
      gather.steps.push_back({handle, pages, table_.reserve(0, pages), is_new, true});
      gather.pages += pages;
    };
    for (const std::int32_t pages : sizes) add(table_.add_handle(pages), true);
    for (const PageTable::Handle handle : again) add(handle, false);
    gather.address = gather.steps.front().address;
    return gather;
  }
  CUresult carry_out(const Gather& gather) { return pages_->carry_out(gather, {}, true).result; }
  // All of the gather's steps, as if they had been taken away.
  void undo(const Gather& gather) {
    for (const Gather::Step& step : gather.steps)
      ASSERT_EQ(pages_->unmap(step.address, step.pages).result, CUDA_SUCCESS);
    for (const Gather::Step& step : gather.steps)
      if (step.is_new) pages_->release(step.handle);
  }
  // The first byte of a step, for the host to touch.
  char& byte_of(const Gather::Step& step) {
    char* const byte = reinterpret_cast<char*>(
        pages_->address_of(0) + static_cast<std::uint64_t>((step.address - PageTable::begin_of(0)) * kSectorBytes));
    driver_.host_access({{byte, 1}}, {{byte, 1}});
    return *byte;
  }

  SimulatedDriver driver_{{.capacity_bytes = 64 * kMega, .backing = Backing::memory}};
  CUcontext context_ = nullptr;
  std::unique_ptr<PageSource> source_;
  std::unique_ptr<DevicePages> pages_;
  PageTable table_{kPage};
};

TEST_F(DevicePagesTest, AHandleThatIsMappedAgainShowsTheSameBytes) {
  const Gather first = gather_of({1, 2});
  ASSERT_EQ(carry_out(first), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used_bytes(), 6 * kMega);
  const Gather second = gather_of({1}, {first.steps[1].handle});
  ASSERT_EQ(carry_out(second), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used_bytes(), 8 * kMega);
  byte_of(first.steps[1]) = 42;
  EXPECT_EQ(byte_of(second.steps[1]), 42);
  EXPECT_EQ(driver_.calls("cuMemSetAccess"), 2U) << "one a gather";
  EXPECT_EQ(driver_.calls("cuMemAddressReserve"), 1U) << "one an arena";
  undo(second);
  undo(first);
  EXPECT_EQ(driver_.used_bytes(), 0U);
  EXPECT_EQ(pages_->free_arena(0).result, CUDA_SUCCESS);
  EXPECT_EQ(pages_->address_of(0), 0U);
}

// At whichever call the driver refuses: nothing is left but the arena's addresses.
TEST_F(DevicePagesTest, ARefusalAtAnyCallLeavesTheDeviceAsItWas) {
  const Gather base = gather_of({2});
  for (std::uint64_t call = 1;; ++call) {
    const Gather gather = gather_of({1, 2}, {base.steps[0].handle});
    if (call == 1) {
      ASSERT_EQ(carry_out(base), CUDA_SUCCESS);
    }
    const std::size_t used = driver_.used_bytes();
    driver_.fail_call("", call, CUDA_ERROR_OUT_OF_MEMORY);
    const CUresult result = carry_out(gather);
    driver_.clear_faults();
    if (result == CUDA_SUCCESS) {
      EXPECT_GT(call, 6U);
      undo(gather);
      break;
    }
    EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(driver_.used_bytes(), used) << "call " << call;
    EXPECT_FALSE(pages_->has_debts());
    table_.cancel(gather.address, gather.pages);
    ASSERT_LT(call, 100U);
  }
  undo(base);
  EXPECT_EQ(driver_.used_bytes(), 0U);
}

// What can neither be finished nor undone keeps its addresses, and is undone before anything is mapped there.
TEST_F(DevicePagesTest, WhatTheDriverRefusesToUndoIsTriedAgain) {
  const Gather gather = gather_of({1, 1});
  driver_.fail_call("cuMemSetAccess", 1, CUDA_ERROR_LAUNCH_FAILED);
  driver_.fail_call("cuMemUnmap", 1, CUDA_ERROR_LAUNCH_FAILED);
  driver_.fail_call("cuMemRelease", 2, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(carry_out(gather), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(pages_->has_debts());
  EXPECT_NE(driver_.used_bytes(), 0U);
  EXPECT_EQ(carry_out(gather), CUDA_SUCCESS) << "at the same addresses";
  EXPECT_FALSE(pages_->has_debts());
  EXPECT_EQ(driver_.used_bytes(), 4 * kMega);
  undo(gather);
  driver_.clear_faults();
}

TEST_F(DevicePagesTest, AddressesThatTheDriverRefusesAreAnOrdinaryFailure) {
  const Gather gather = gather_of({1});
  driver_.fail_call("cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const DevicePages::Outcome outcome = pages_->carry_out(gather, {}, true);
  EXPECT_EQ(outcome.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(outcome.call, DriverEntryId::mem_address_reserve);
  EXPECT_EQ(driver_.used_bytes(), 0U);
  driver_.clear_faults();
  EXPECT_EQ(carry_out(gather), CUDA_SUCCESS);
  undo(gather);
}

}  // namespace
}  // namespace cistern
