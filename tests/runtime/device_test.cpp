// Devices by name and number, the current one, and what they are.

#include <cistern/device.h>
#include <cistern/error.h>
#include <cistern/event.h>
#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <thread>

#include "runtime/process_driver.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

TEST(DeviceNames, AreAnIndexOrAText) {
  EXPECT_EQ(Device(3).index(), 3);
  EXPECT_EQ(Device("cuda:12").index(), 12);
  EXPECT_EQ(Device("simulated:1").index(), 1);
  EXPECT_TRUE(Device().is_current());
  EXPECT_TRUE(Device(-1).is_current());
  EXPECT_TRUE(Device("cuda").is_current());
  EXPECT_TRUE(Device(std::string_view("simulated")).is_current());
  EXPECT_EQ(Device("cuda:0"), Device(0));
  EXPECT_NE(Device("cuda:0"), Device());
}

TEST(DeviceNames, AnythingElseIsRefusedByName) {
  EXPECT_THROW(Device(-2), InvalidArgument);
  for (const char* text : {"", "cpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:1x", "cuda: 1", "cuda:99999999999", "CUDA:0",
                           "cuda0", "simulated:1,2"}) {
    try {
      static_cast<void>(Device(text));
      ADD_FAILURE() << "\"" << text << "\" was taken for a device";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr('"' + std::string(text) + '"'));
    }
  }
}

TEST(DeviceNames, NullIsRefused) { EXPECT_THROW(Device(static_cast<const char*>(nullptr)), InvalidArgument); }

TEST(DeviceNames, AreWrittenAsTheyAreRead) {
  EXPECT_EQ(Device(3).to_string(), "cuda:3");
  EXPECT_EQ(Device().to_string(), "cuda");
  EXPECT_EQ(Device(Device(12).to_string()), Device(12));
  EXPECT_LT(Device(0), Device(1));
  EXPECT_EQ(std::hash<Device>()(Device("cuda:1")), std::hash<Device>()(Device(1)));
}

class Devices : public ProcessDevice {};

TEST_F(Devices, CountAndAvailability) {
  EXPECT_EQ(device_count(), kDevices);
  EXPECT_TRUE(is_available());
}

TEST_F(Devices, InitialisingTwiceIsNothing) {
  initialize();
  EXPECT_TRUE(is_initialized());
  const auto retained = driver().calls("cuDevicePrimaryCtxRetain");
  initialize();
  EXPECT_EQ(driver().calls("cuDevicePrimaryCtxRetain"), retained);
}

TEST_F(Devices, CurrentOneIsAThreadsOwn) {
  set_device(1);
  EXPECT_EQ(current_device(), Device(1));
  std::thread([] { EXPECT_EQ(current_device(), Device(0)); }).join();
  set_device(Device());
  EXPECT_EQ(current_device(), Device(1));
}

TEST_F(Devices, OneThatIsNotThereIsRefusedAndChangesNothing) {
  set_device(1);
  EXPECT_THROW(set_device(kDevices), InvalidArgument);
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_THROW(static_cast<void>(memory_info(7)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(device_properties("cuda:7")), InvalidArgument);
  EXPECT_THROW(static_cast<void>(can_access_peer(0, 7)), InvalidArgument);
  EXPECT_THROW(synchronize(7), InvalidArgument);
}

TEST_F(Devices, GuardRestoresThroughNestingAndExceptions) {
  const DeviceGuard outer(1);
  try {
    const DeviceGuard inner(0);
    EXPECT_EQ(current_device(), Device(0));
    set_device(1);
    throw NotReady("on purpose");
  } catch (const NotReady&) {
  }
  EXPECT_EQ(current_device(), Device(1));
  const DeviceGuard none{Device()};
  EXPECT_EQ(current_device(), Device(1));
}

TEST_F(Devices, GuardOfADeviceThatIsNotThereChangesNothing) {
  EXPECT_THROW(DeviceGuard(7), InvalidArgument);
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(Devices, PropertiesAreTheDriversAttributes) {
  const DeviceProperties properties = device_properties(1);
  const DriverApi& api = process_driver();
  const auto attribute = [&](CUdevice_attribute which) {
    int value = -1;
    EXPECT_EQ(api.device_get_attribute(&value, which, process_contexts().driver_device(1)), CUDA_SUCCESS);
    return value;
  };
  EXPECT_FALSE(properties.name.empty());
  EXPECT_EQ(properties.total_memory, std::size_t{4} << 30);
  EXPECT_EQ(properties.compute_capability_major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(properties.compute_capability_minor, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_EQ(properties.multiprocessor_count, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(properties.warp_size, attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE));
  EXPECT_EQ(properties.l2_cache_size, static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)));
  EXPECT_EQ(properties.pci_domain_id, attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
  EXPECT_EQ(properties.pci_bus_id, attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
  EXPECT_EQ(properties.pci_device_id, attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  EXPECT_TRUE(properties.virtual_memory_management);
  EXPECT_NE(properties.uuid, device_properties(0).uuid);
}

TEST_F(Devices, PropertiesOfNoneAreTheCurrentDevices) {
  const DeviceGuard guard(1);
  EXPECT_EQ(device_properties().uuid, device_properties(1).uuid);
}

TEST_F(Devices, NameCapabilityAndUuidAreThoseOfTheProperties) {
  const DeviceProperties properties = device_properties(1);
  EXPECT_EQ(device_name(1), properties.name);
  EXPECT_EQ(device_capability(1),
            (ComputeCapability{properties.compute_capability_major, properties.compute_capability_minor}));
  EXPECT_EQ(device_capability(1).to_string(), "9.0");
  EXPECT_LT((ComputeCapability{8, 9}), (ComputeCapability{9, 0}));
  EXPECT_THAT(properties.uuid_text(),
              ::testing::MatchesRegex("GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
  const DeviceGuard guard(1);
  EXPECT_EQ(device_name(-1), device_name(1));
  EXPECT_THROW(static_cast<void>(device_name(7)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(device_capability(-2)), InvalidArgument);
}

TEST_F(Devices, CapabilitiesAreTheDriversAndAskedOnce) {
  const DeviceCapabilities can = device_capabilities(1);
  int version = 0;
  ASSERT_EQ(process_driver().driver_get_version(&version), CUDA_SUCCESS);
  EXPECT_EQ(can.driver_version, version);
  EXPECT_EQ(can.virtual_memory, device_properties(1).virtual_memory_management);
  EXPECT_TRUE(can.graphs);
  EXPECT_TRUE(can.unified_addressing);
  const auto calls = driver().calls("cuDeviceGetAttribute");
  EXPECT_EQ(device_capabilities(1).driver_version, version);
  EXPECT_EQ(driver().calls("cuDeviceGetAttribute"), calls);
  EXPECT_THROW(static_cast<void>(device_capabilities(7)), InvalidArgument);
}

TEST_F(Devices, GuardMayChangeItsDeviceAndRestoresTheFirst) {
  {
    DeviceGuard guard(1);
    guard.set_device(0);
    EXPECT_EQ(current_device(), Device(0));
    guard.set_device(1);
    EXPECT_THROW(guard.set_device(7), InvalidArgument);
    EXPECT_EQ(current_device(), Device(1));
    EXPECT_EQ(guard.original_device(), Device(0));
  }
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(Devices, GuardOfNoneDoesNothingUntilItIsGivenADevice) {
  {
    OptionalDeviceGuard guard(std::nullopt);
    set_device(1);
    EXPECT_FALSE(guard.original_device().has_value());
  }
  EXPECT_EQ(current_device(), Device(1));
  OptionalDeviceGuard guard;
  EXPECT_THROW(guard.set_device(7), InvalidArgument);
  EXPECT_FALSE(guard.original_device().has_value());
  guard.set_device(0);
  guard.set_device(0);
  EXPECT_EQ(guard.original_device(), Device(1));
  guard.reset();
  EXPECT_EQ(current_device(), Device(1));
  { const OptionalDeviceGuard again{std::optional<Device>(0)}; }
  EXPECT_EQ(current_device(), Device(1));
}

TEST_F(Devices, GuardThatWasResetGuardsNothing) {
  {
    OptionalDeviceGuard guard{std::optional<Device>(1)};
    guard.reset();
    EXPECT_EQ(current_device(), Device(0));
    EXPECT_FALSE(guard.original_device().has_value());
    set_device(1);
    guard.reset();
    EXPECT_EQ(current_device(), Device(1));
  }
  EXPECT_EQ(current_device(), Device(1));
}

TEST_F(Devices, MemoryInfoFollowsTheDriver) {
  const MemoryInfo before = memory_info(1);
  EXPECT_EQ(before.total, std::size_t{4} << 30);
  const DeviceGuard guard(1);
  const ContextGuard context(process_driver(), process_contexts().primary(1));
  CUdeviceptr pointer = 0;
  ASSERT_EQ(process_driver().mem_alloc(&pointer, std::size_t{8} << 20), CUDA_SUCCESS);
  EXPECT_EQ(memory_info().free, before.free - (std::size_t{8} << 20));
  EXPECT_EQ(memory_info(0).free, memory_info(0).total);
  ASSERT_EQ(process_driver().mem_free(pointer), CUDA_SUCCESS);
}

TEST_F(Devices, SynchronizeFinishesTheDevicesWorkAndNotAnothers) {
  const Stream here = Stream::create({.device = 0});
  const Stream there = Stream::create({.device = 1});
  occupy(here);
  occupy(there);
  synchronize(1);
  EXPECT_FALSE(here.query());
  EXPECT_TRUE(there.query());
  synchronize();
  EXPECT_TRUE(here.query());
}

TEST_F(Devices, PeersReachEachOtherAndADeviceItself) {
  EXPECT_TRUE(can_access_peer(0, 1));
  EXPECT_TRUE(can_access_peer(1, 0));
  EXPECT_TRUE(can_access_peer(1, 1));
}

TEST_F(Devices, DriverFailureNamesTheCall) {
  driver().fail_call("cuMemGetInfo", 1, CUDA_ERROR_UNKNOWN);
  try {
    static_cast<void>(memory_info(1));
    FAIL() << "a failure went unnoticed";
  } catch (const DriverError& error) {
    EXPECT_EQ(error.call(), "cuMemGetInfo");
    EXPECT_THAT(error.what(), HasSubstr("device 1"));
  }
}

}  // namespace
}  // namespace cistern
