#include <cistern/error.h>

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(SimulatedDevice, NothingWorksBeforeInit) {
  SimulatedDriver driver({.capacity_bytes = 16 * MiB});
  const DriverApi& api = driver.api();
  int count = 0;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(api.device_get_count(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(api.mem_alloc(&pointer, 1), CUDA_ERROR_NOT_INITIALIZED);
  int version = 0;
  EXPECT_EQ(api.driver_get_version(&version), CUDA_SUCCESS);
  EXPECT_GE(version, 12000);
  EXPECT_EQ(api.init(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.init(0), CUDA_SUCCESS);
  EXPECT_EQ(api.device_get_count(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1);
}

TEST(SimulatedDevice, CallsThatNeedAContextSayThatNoneIsCurrent) {
  SimulatedDriver driver({.capacity_bytes = 16 * MiB});
  const DriverApi& api = driver.api();
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  std::size_t bytes = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  int priority = 0;
  EXPECT_EQ(api.mem_alloc(&pointer, 1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.mem_free(pointer), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.mem_get_info(&bytes, &bytes), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.stream_create_with_priority(&stream, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.event_create(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.stream_synchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.ctx_synchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(api.ctx_get_stream_priority_range(&priority, &priority), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext context = reinterpret_cast<CUcontext>(std::uintptr_t{1});
  EXPECT_EQ(api.ctx_get_current(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr);
}

TEST(SimulatedDevice, TheCurrentContextIsTheThreadsAndTheDriversOwn) {
  ReadyDriver one({.devices = 2, .capacity_bytes = 16 * MiB});
  ReadyDriver other({.capacity_bytes = 16 * MiB});
  one.use(1);
  const auto current = [](const ReadyDriver& ready) {
    CUcontext context = nullptr;
    EXPECT_EQ(ready.api.ctx_get_current(&context), CUDA_SUCCESS);
    return context;
  };
  const CUcontext mine = current(one);
  EXPECT_NE(mine, nullptr);
  EXPECT_NE(mine, current(other));
  std::thread([&] { EXPECT_EQ(current(one), nullptr); }).join();
  EXPECT_EQ(current(one), mine);
  EXPECT_EQ(other.api.ctx_set_current(mine), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(one.api.ctx_set_current(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(current(one), nullptr);
  EXPECT_NE(current(other), nullptr);
}

TEST(SimulatedDevice, PrimaryContextsAreReleasedAsOftenAsRetained) {
  ReadyDriver ready;
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  EXPECT_EQ(ready.api.primary_ctx_retain(&first, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.primary_ctx_retain(&second, 0), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_EQ(ready.api.primary_ctx_retain(&first, 1), CUDA_ERROR_INVALID_DEVICE);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ready.api.primary_ctx_release(0), CUDA_SUCCESS);  // one is the fixture's
  EXPECT_EQ(ready.api.primary_ctx_release(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(SimulatedDevice, TellsWhatItIs) {
  ReadyDriver ready(
      {.devices = 2, .capacity_bytes = 40 * MiB, .compute_capability_major = 8, .compute_capability_minor = 6});
  char name[64] = {};
  EXPECT_EQ(ready.api.device_get_name(name, sizeof name, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "simulated");
  EXPECT_EQ(ready.api.device_get_name(name, 4, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "sim");
  CUuuid first{};
  CUuuid second{};
  EXPECT_EQ(ready.api.device_get_uuid(&first, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.device_get_uuid(&second, 1), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(first.bytes, second.bytes, 16), 0);
  std::size_t total = 0;
  EXPECT_EQ(ready.api.device_total_mem(&total, 1), CUDA_SUCCESS);
  EXPECT_EQ(total, 40 * MiB);
  const auto attribute = [&](CUdevice_attribute which, int device = 0) {
    int value = -1;
    EXPECT_EQ(ready.api.device_get_attribute(&value, which, device), CUDA_SUCCESS) << which;
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 8);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 6);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_GT(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), 1);
  EXPECT_NE(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0), attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1));
  int least = 0;
  int greatest = 0;
  EXPECT_EQ(ready.api.ctx_get_stream_priority_range(&least, &greatest), CUDA_SUCCESS);
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, -5);
}

TEST(SimulatedDevice, UnknownDevicesAndAttributesAreErrors) {
  ReadyDriver ready;
  CUdevice device = 0;
  int value = 0;
  std::size_t bytes = 0;
  for (const int index : {-1, 1}) {
    EXPECT_EQ(ready.api.device_get(&device, index), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(ready.api.device_total_mem(&bytes, index), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(ready.api.device_get_attribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, index), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(ready.api.device_can_access_peer(&value, 0, index), CUDA_ERROR_INVALID_DEVICE);
  }
  EXPECT_EQ(ready.api.device_get_attribute(&value, static_cast<CUdevice_attribute>(250), 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(SimulatedDevice, DevicesArePeersOfOneAnother) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  int can_access = -1;
  EXPECT_EQ(ready.api.device_can_access_peer(&can_access, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can_access, 1);
  EXPECT_EQ(ready.api.device_can_access_peer(&can_access, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(can_access, 0);
}

TEST(SimulatedDevice, ErrorsHaveNamesAndWords) {
  SimulatedDriver driver({.capacity_bytes = 16 * MiB});
  const char* words = nullptr;
  EXPECT_EQ(driver.api().get_error_name(CUDA_ERROR_OUT_OF_MEMORY, &words), CUDA_SUCCESS);
  EXPECT_STREQ(words, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(driver.api().get_error_string(CUDA_ERROR_INVALID_VALUE, &words), CUDA_SUCCESS);
  EXPECT_STREQ(words, "invalid argument");
  EXPECT_EQ(driver.api().get_error_name(static_cast<CUresult>(998), &words), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(words, nullptr);
}

TEST(SimulatedDevice, VisibleDevicesAreSeenInTheirOrder) {
  SimulatedOptions options{.devices = 4, .capacity_bytes = 16 * MiB};
  ReadyDriver all(options);
  options.set_visible_devices("2,0");
  ReadyDriver some(options);
  int count = 0;
  EXPECT_EQ(some.api.device_get_count(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  const auto uuid = [](const ReadyDriver& ready, int device) {
    CUuuid result{};
    EXPECT_EQ(ready.api.device_get_uuid(&result, device), CUDA_SUCCESS);
    return std::string(result.bytes, 16);
  };
  EXPECT_EQ(uuid(some, 0), uuid(all, 2));
  EXPECT_EQ(uuid(some, 1), uuid(all, 0));
}

TEST(SimulatedDevice, WithNoVisibleDeviceInitFindsNone) {
  SimulatedOptions options{.devices = 2, .capacity_bytes = 16 * MiB};
  options.set_visible_devices("");
  const SimulatedDriver driver(options);
  EXPECT_EQ(driver.api().init(0), CUDA_ERROR_NO_DEVICE);
}

TEST(SimulatedDevice, OptionsThatCannotBeMetAreRefused) {
  EXPECT_THROW(SimulatedDriver({.devices = 0}), InvalidArgument);
  EXPECT_THROW(SimulatedDriver({.devices = 65}), InvalidArgument);
  EXPECT_THROW(SimulatedDriver({.capacity_bytes = std::size_t{1} << 50}), InvalidArgument);
  EXPECT_THROW(SimulatedDriver({.visible_devices = std::vector<int>{1}}), InvalidArgument);
}

TEST(SimulatedDevice, IsFoundBehindItsTable) {
  SimulatedDriver one({.capacity_bytes = 16 * MiB});
  SimulatedDriver other({.capacity_bytes = 16 * MiB});
  EXPECT_EQ(SimulatedDriver::behind(one.api()), &one);
  EXPECT_EQ(SimulatedDriver::behind(other.api()), &other);
  const DriverApi copy = other.api();
  EXPECT_EQ(SimulatedDriver::behind(copy), &other);
  EXPECT_EQ(SimulatedDriver::behind(DriverApi{}), nullptr);
}

TEST(SimulatedDevice, TwoDriversShareNothing) {
  ReadyDriver one;
  ReadyDriver other;
  const CUdeviceptr pointer = one.allocate(4 * MiB);
  EXPECT_EQ(other.driver.used_bytes(), 0u);
  EXPECT_EQ(other.api.mem_free(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(one.driver.calls("cuMemFree"), 0u);
  EXPECT_EQ(one.api.mem_free(pointer), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cistern
