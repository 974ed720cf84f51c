// Page-locked memory for std::pmr and from C: the contract as far as it is about the host's memory.

#include <cistern/c_api.h>
#include <cistern/cistern.h>
#include <cistern/integrations/pmr.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

namespace cistern {
namespace {

std::int64_t live_bytes() { return host_memory_stats().active_bytes.current; }

TEST(PinnedMemoryResource, VectorsLieInPageLockedMemory) {
  PinnedMemoryResource pinned;
  {
    std::pmr::vector<int> values({1, 2, 3}, &pinned);
    EXPECT_TRUE(is_pinned(values.data()));
    EXPECT_EQ(live_bytes(), 64);
    std::array<int, 3> back{};
    DeviceBuffer<int> buffer(3);
    copy_async(buffer.data(), values.data(), 12);
    copy_async(back.data(), buffer.data(), 12);
    current_stream().synchronize();
    EXPECT_EQ(back, (std::array<int, 3>{1, 2, 3}));
  }
  EXPECT_EQ(live_bytes(), 0);
}

TEST(PinnedMemoryResource, KeepsWhatIsGivenBack) {
  PinnedMemoryResource pinned;
  for (int i = 0; i < 100; ++i) pinned.deallocate(pinned.allocate(100), 100);
  EXPECT_EQ(host_memory_stats().num_host_alloc, 1);
  EXPECT_EQ(live_bytes(), 0);
}

TEST(PinnedMemoryResource, AlignsUpToAPageAndRefusesMore) {
  PinnedMemoryResource pinned;
  for (const std::size_t alignment : {1, 64, 4096}) {
    void* const pointer = pinned.allocate(10, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % alignment, 0U);
    pinned.deallocate(pointer, 10, alignment);
  }
  EXPECT_THROW(static_cast<void>(pinned.allocate(10, std::size_t{1} << 30)), InvalidArgument);
  void* const nothing = pinned.allocate(0, 1);
  EXPECT_NE(nothing, nullptr);
  pinned.deallocate(nothing, 0, 1);
  EXPECT_EQ(live_bytes(), 0);
}

TEST(PinnedMemoryResource, RefusesWhatIsNoBlockOfTheHost) {
  PinnedMemoryResource pinned, other;
  void* const pointer = pinned.allocate(1000);
  void* const on_device = allocate(1000);
  int foreign = 0;
  const auto said = [](std::pmr::memory_resource& resource, void* freed, std::size_t bytes) {
    ::testing::internal::CaptureStderr();
    resource.deallocate(freed, bytes);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(pinned, &foreign, 4), "");
  EXPECT_NE(said(pinned, on_device, 1000), "");
  EXPECT_NE(said(pinned, static_cast<char*>(pointer) + 64, 1000), "");
  EXPECT_NE(said(pinned, pointer, 999).find("asked for with 1000"), std::string::npos);
  EXPECT_EQ(live_bytes(), 1024);
  EXPECT_TRUE(pinned.is_equal(other));
  EXPECT_EQ(said(other, pointer, 1000), "");
  EXPECT_NE(said(pinned, pointer, 1000), "");
  EXPECT_EQ(memory_allocated(), 1024U);
  EXPECT_FALSE(pinned.is_equal(*std::pmr::get_default_resource()));
  EXPECT_THROW(static_cast<void>(PinnedMemoryResource(Device(7)).allocate(1)), InvalidArgument);
}

TEST(HostMemoryFromC, IsTheSameHeap) {
  void* pointer = nullptr;
  ASSERT_EQ(cistern_host_allocate(3000, 0, 0, &pointer), CISTERN_SUCCESS) << cistern_last_error();
  EXPECT_EQ(live_bytes(), 3072);
  EXPECT_EQ(cistern_host_record_stream(pointer, 0, nullptr), CISTERN_SUCCESS);
  deallocate_host(pointer);
  EXPECT_EQ(cistern_host_deallocate(pointer), CISTERN_ERROR_INVALID_ARGUMENT);
  CISTERN_STRUCT(cistern_host_memory_stats, stats);
  ASSERT_EQ(cistern_get_host_memory_stats(&stats), CISTERN_SUCCESS);
  EXPECT_EQ(stats.num_host_alloc, 1);
  EXPECT_EQ(stats.allocated_bytes.current, 2 << 20);
  EXPECT_EQ(stats.host_alloc_time.count, 1);
  EXPECT_EQ(cistern_empty_host_cache(), CISTERN_SUCCESS);
  EXPECT_EQ(host_memory_stats().allocated_bytes.current, 0);
  EXPECT_EQ(cistern_reset_peak_host_memory_stats(), CISTERN_SUCCESS);
  EXPECT_EQ(cistern_reset_accumulated_host_memory_stats(), CISTERN_SUCCESS);
  EXPECT_EQ(host_memory_stats().flat(), HostMemoryStats{}.flat());
}

TEST(HostMemoryFromC, BadInputIsAStatusAndChangesNothing) {
  void* pointer = nullptr;
  ASSERT_EQ(cistern_host_allocate(100, 4096, 0, &pointer), CISTERN_SUCCESS);
  const auto before = host_memory_stats_flat();
  int foreign = 0;
  void* untouched = &foreign;
  EXPECT_EQ(cistern_host_allocate(100, 0, 0, nullptr), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_host_allocate(100, 0, 99, &untouched), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_host_allocate(100, 48, 0, &untouched), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_host_allocate(std::size_t{1} << 62, 0, 0, &untouched), CISTERN_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(untouched, &foreign);
  CISTERN_STRUCT(cistern_out_of_memory_report, report);
  ASSERT_EQ(cistern_last_out_of_memory(&report), CISTERN_SUCCESS);
  EXPECT_EQ(report.device, -1);
  for (void* wrong : {static_cast<void*>(&foreign), static_cast<void*>(static_cast<char*>(pointer) + 64)}) {
    EXPECT_EQ(cistern_host_deallocate(wrong), CISTERN_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(cistern_host_record_stream(wrong, 0, nullptr), CISTERN_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(cistern_host_deallocate_sized(pointer, 101), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_host_record_stream(pointer, 0, reinterpret_cast<cistern_stream>(&foreign)), CISTERN_ERROR_DRIVER);
  EXPECT_EQ(cistern_get_host_memory_stats(nullptr), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_deallocate(pointer), CISTERN_ERROR_INVALID_ARGUMENT) << "it is no block of a device";
  EXPECT_EQ(host_memory_stats_flat(), before);
  EXPECT_EQ(cistern_host_deallocate(nullptr), CISTERN_SUCCESS);
  EXPECT_EQ(cistern_host_deallocate_sized(pointer, 100), CISTERN_SUCCESS);
}

TEST(ManagedMemoryResource, HostAndDeviceReachItsMemory) {
  ManagedMemoryResource managed, other;
  {
    std::pmr::vector<int> values({1, 2, 3}, &managed);
    EXPECT_EQ(managed_memory_stats().active_requests.current, 1);
    EXPECT_FALSE(is_pinned(values.data()));
    fill32_async(values.data(), 9, 3);
    current_stream().synchronize();
    EXPECT_EQ(values[2], 9);
  }
  EXPECT_EQ(managed_memory_stats().active_requests.current, 0);
  EXPECT_TRUE(managed.is_equal(other));
  EXPECT_FALSE(managed.is_equal(PinnedMemoryResource()));
  void* const pointer = managed.allocate(1000, 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pointer) % 4096, 0U);
  ::testing::internal::CaptureStderr();
  managed.deallocate(pointer, 999);
  deallocate_host(pointer);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("asked for with 1000"), std::string::npos);
  EXPECT_EQ(managed_memory_stats().active_requests.current, 1);
  managed.deallocate(pointer, 1000);
  EXPECT_EQ(memory_stats().allocation.all.allocated, 0);
}

TEST(ManagedMemoryFromC, IsTheSameHeapAndSaysWhatIsWrong) {
  void* pointer = nullptr;
  ASSERT_EQ(cistern_managed_allocate(3000, 0, 0, &pointer), CISTERN_SUCCESS) << cistern_last_error();
  EXPECT_EQ(managed_memory_stats().active_bytes.current, 3072);
  EXPECT_EQ(cistern_managed_allocate(3000, 0, 0, nullptr), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_managed_allocate(3000, 0, 9, &pointer), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_host_deallocate(pointer), CISTERN_ERROR_INVALID_ARGUMENT) << "it is not page-locked";
  EXPECT_EQ(cistern_managed_deallocate_sized(pointer, 3001), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_managed_record_stream(pointer, 0, nullptr), CISTERN_SUCCESS);
  EXPECT_EQ(cistern_managed_record_stream(&pointer, 0, nullptr), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_managed_deallocate_sized(pointer, 3000), CISTERN_SUCCESS);
  EXPECT_EQ(cistern_managed_deallocate(pointer), CISTERN_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(cistern_empty_managed_cache(), CISTERN_SUCCESS);
  CISTERN_STRUCT(cistern_host_memory_stats, stats);
  ASSERT_EQ(cistern_get_managed_memory_stats(&stats), CISTERN_SUCCESS);
  EXPECT_EQ(stats.num_host_free, 1);
  EXPECT_EQ(cistern_reset_peak_managed_memory_stats(), CISTERN_SUCCESS);
  EXPECT_EQ(cistern_reset_accumulated_managed_memory_stats(), CISTERN_SUCCESS);
  EXPECT_EQ(managed_memory_stats().flat(), HostMemoryStats{}.flat());
}

TEST(HostMemory, FiguresAreEmptyBeforeTheFirstUse) {
  EXPECT_TRUE(host_memory_stats_flat().empty());
  EXPECT_TRUE(host_memory_stats_as_nested_dict().entries.empty());
  deallocate_host(nullptr);
  deallocate_host(allocate_host(1));
  EXPECT_EQ(host_memory_stats_flat().size(), 28U);
  EXPECT_EQ(host_memory_stats_as_nested_dict().entries.size(), 8U);
}

TEST(HostMemory, OwnersShareTheCache) {
  const void* first = nullptr;
  {
    const PinnedMemory memory(5000, {.portable = true, .mapped = true, .write_combined = false});
    first = memory.data();
    EXPECT_TRUE(is_pinned(first));
    EXPECT_EQ(memory.device_pointer(), first);
  }
  const PinnedMemory again(5000);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(host_memory_stats().num_host_alloc, 1);
  const PinnedMemory combined(5000, {.portable = true, .mapped = false, .write_combined = true});
  EXPECT_EQ(host_memory_stats().num_host_alloc, 1) << "a driver call of its own";
  EXPECT_TRUE(is_pinned(combined.data()));
}

TEST(HostMemory, RegistrationIsChosenByTheOption) {
  set_options("pinned_use_cuda_host_register:True,pinned_num_register_threads:2");
  EXPECT_NE(effective_config().find("pinned_num_register_threads: 2"), std::string::npos);
  void* const pointer = allocate_host(3 << 20);
  EXPECT_EQ(simulated::driver().calls("cuMemHostRegister"), 1U);
  deallocate_host(pointer);
  empty_host_cache();
  EXPECT_EQ(simulated::driver().calls("cuMemHostUnregister"), 1U);
}

}  // namespace
}  // namespace cistern
