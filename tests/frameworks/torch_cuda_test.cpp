// torch.cuda: devices, events and guards.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <stdexcept>
#include <thread>

#include "runtime/process_driver.h"
#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TorchCuda : public FrameworkDevice {
 protected:
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  }
  static int attribute(CUdevice_attribute which, int device) {
    int value = -1;
    EXPECT_EQ(process_driver().device_get_attribute(&value, which, process_contexts().driver_device(device)),
              CUDA_SUCCESS);
    return value;
  }
};

TEST_F(TorchCuda, CanDeviceAccessPeerBothWays) {
  EXPECT_TRUE(can_access_peer(0, 1));
  EXPECT_TRUE(can_access_peer(1, 0));
  EXPECT_TRUE(can_access_peer(0, 0));
  EXPECT_THROW(static_cast<void>(can_access_peer(0, 2)), InvalidArgument);
}

class TorchCudaWithoutPeers : public TorchCuda {
 protected:
  static void SetUpTestSuite() {
    TorchCuda::SetUpTestSuite();
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=4GiB,races=report,peers=none", 1);
  }
};

TEST_F(TorchCudaWithoutPeers, CanDeviceAccessPeerIsFalse) {
  EXPECT_FALSE(can_access_peer(0, 1));
  EXPECT_FALSE(can_access_peer(1, 0));
}

TEST_F(TorchCuda, CurrentAndDefaultStreamOfADevice) {
  const Stream mine = Stream::create({.device = 1});
  EXPECT_EQ(current_stream(1), default_stream(1));
  set_stream(mine);
  EXPECT_EQ(current_stream(), mine);
  EXPECT_EQ(current_stream(1), mine);
  EXPECT_EQ(default_stream().device(), Device(1));
  EXPECT_EQ(default_stream(1).native_handle(), nullptr);
  EXPECT_EQ(current_stream(0), default_stream(0));
}

TEST_F(TorchCuda, DeviceGuardSwitchesAndRestores) {
  {
    const DeviceGuard outer(1);
    EXPECT_EQ(current_device(), Device(1));
    const DeviceGuard inner("cuda:0");
    EXPECT_EQ(current_device(), Device(0));
  }
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(TorchCuda, DeviceGuardOfNoneOrMinusOneDoesNothing) {
  set_device(1);
  const DeviceGuard none{Device()};
  const DeviceGuard negative{Device(-1)};
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_THAT(refusal([] { const DeviceGuard below{Device(-2)}; }), HasSubstr("-2"));
}

TEST_F(TorchCuda, DeviceOfGuardSwitchesToTheOwnerOfAPointer) {
  const DeviceBuffer<int> here(8, default_stream(0));
  const DeviceBuffer<int> there(8, default_stream(1));
  EXPECT_EQ(device_of(there.data()), Device(1));
  {
    const OptionalDeviceGuard guard(device_of(there.data()));
    EXPECT_EQ(current_device(), Device(1));
    const OptionalDeviceGuard inner(device_of(here.data() + 3));
    EXPECT_EQ(current_device(), Device(0));
  }
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(TorchCuda, DeviceOfGuardOfAHostPointerDoesNothing) {
  set_device(1);
  int local = 0;
  const OptionalDeviceGuard host(device_of(&local));
  const OptionalDeviceGuard null(device_of(nullptr));
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_FALSE(device_of(&local).has_value());
}

TEST_F(TorchCuda, CapabilityNameAndPropertiesAreTheDriversOwn) {
  for (const Device device : {Device(0), Device(1), Device("cuda:1")}) {
    const DeviceProperties properties = device_properties(device);
    EXPECT_EQ(device_name(device), properties.name);
    EXPECT_EQ(device_capability(device).major, properties.compute_capability_major);
    EXPECT_EQ(device_capability(device).minor, properties.compute_capability_minor);
    const int index = device.index();
    EXPECT_EQ(properties.compute_capability_major, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, index));
    EXPECT_EQ(properties.multiprocessor_count, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, index));
    EXPECT_EQ(properties.pci_bus_id, attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, index));
  }
  set_device(1);
  EXPECT_EQ(device_properties().uuid, device_properties(1).uuid);
  EXPECT_EQ(device_properties(-1).uuid, device_properties(1).uuid);
  EXPECT_NE(device_properties(0).uuid, device_properties(1).uuid);
  EXPECT_EQ(device_name(-1), device_name(1));
  EXPECT_EQ(device_capability(-1), device_capability(1));
}

TEST_F(TorchCuda, InitTwiceDoesNothing) {
  initialize();
  const auto retained = driver().calls("cuDevicePrimaryCtxRetain");
  const auto initialized = driver().calls("cuInit");
  initialize();
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(driver().calls("cuDevicePrimaryCtxRetain"), retained);
  EXPECT_EQ(driver().calls("cuInit"), initialized);
}

TEST_F(TorchCuda, FunctionsInitialiseOnDemand) {
  // Each test of ctest's is a process of its own: the fixture has made the device already, and
  // without initialize() work runs.
  note(current_stream(), 1);
  synchronize();
  EXPECT_TRUE(is_initialized());
  EXPECT_THAT(ran, ElementsAre(1));
}

TEST_F(TorchCuda, SetDeviceIsOfThisThread) {
  set_device(1);
  int elsewhere = -1;
  std::thread([&] { elsewhere = current_device().index(); }).join();
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_EQ(elsewhere, 0);
  EXPECT_THAT(refusal([] { set_device(2); }), HasSubstr("2"));
  EXPECT_EQ(current_device(), Device(1));
}

TEST_F(TorchCuda, SetDeviceOfMinusOneDoesNothing) {
  set_device(1);
  set_device(-1);
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_THAT(refusal([] { set_device(-2); }), HasSubstr("-2"));
}

TEST_F(TorchCuda, StreamGuardOfNoneDoesNothing) {
  const Stream before = Stream::create();
  set_stream(before);
  const StreamGuard guard(std::nullopt);
  EXPECT_EQ(current_stream(), before);
}

TEST_F(TorchCuda, StreamGuardSwitchesDeviceAndStreamAndRestoresBoth) {
  const Stream here = Stream::create();
  const Stream before_there = Stream::create({.device = 1});
  const Stream there = Stream::create({.device = 1});
  set_stream(before_there);
  set_stream(here);
  try {
    const StreamGuard guard(there);
    EXPECT_EQ(current_device(), Device(1));
    EXPECT_EQ(current_stream(), there);
    EXPECT_EQ(current_stream(0), here);
    throw std::runtime_error("left by an exception");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(current_device(), Device(0));
  EXPECT_EQ(current_stream(), here);
  EXPECT_EQ(current_stream(1), before_there);
}

TEST_F(TorchCuda, SynchronizeWaitsForAllStreamsOfTheDevice) {
  note(Stream::create(), 1);
  note(Stream::from_pool(), 2);
  note(default_stream(0), 3);
  note(Stream::create({.device = 1}), 4);
  synchronize();
  EXPECT_THAT(ran, ::testing::UnorderedElementsAre(1, 2, 3));
  synchronize(1);
  EXPECT_THAT(ran, ::testing::UnorderedElementsAre(1, 2, 3, 4));
  note(default_stream(0), 5);
  note(default_stream(1), 6);
  set_device(1);
  synchronize();
  EXPECT_THAT(ran, ::testing::UnorderedElementsAre(1, 2, 3, 4, 6));
}

TEST_F(TorchCuda, AStreamOfMinusOneIsOnTheCurrentDevice) {
  set_device(1);
  EXPECT_EQ(Stream::from_pool({.device = -1}).device(), Device(1));
  EXPECT_EQ(Stream::from_pool().device(), Device(1));
  EXPECT_THAT(refusal([] { static_cast<void>(Stream::from_pool({.device = -2})); }), HasSubstr("-2"));
}

TEST_F(TorchCuda, WaitsAndRecordsMakeNoCallThatBlocksTheHost) {
  const Stream first = Stream::create();
  const Stream second = Stream::create();
  note(first, 1);
  const auto blocked = driver().host_synchronizations();
  const Event event = first.record_event();
  second.wait_event(event);
  second.wait_stream(first);
  event.wait(second);
  EXPECT_EQ(driver().host_synchronizations(), blocked);
  EXPECT_THAT(ran, ElementsAre());
}

TEST_F(TorchCuda, AnEventIsMadeWhenItIsFirstRecorded) {
  const auto created = driver().calls("cuEventCreate");
  Event event;
  EXPECT_EQ(driver().calls("cuEventCreate"), created);
  EXPECT_FALSE(event.is_created());
  EXPECT_TRUE(event.query());
  event.synchronize();
  event.wait(Stream::create());
  EXPECT_EQ(driver().calls("cuEventCreate"), created);
  event.record(Stream::create({.device = 1}));
  EXPECT_EQ(driver().calls("cuEventCreate"), created + 1);
  EXPECT_EQ(event.device(), Device(1));
}

TEST_F(TorchCuda, OneDeviceRecordsAnEventAndAnyWaitsForIt) {
  const Stream here = Stream::create();
  const Stream there = Stream::create({.device = 1});
  Event event;
  note(here, 1);
  event.record(here);
  EXPECT_THAT(refusal([&] { event.record(there); }), AllOf(HasSubstr("device 0"), HasSubstr("device 1")));
  there.wait_event(event);
  note(there, 2);
  there.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_F(TorchCuda, EventOptionsAreOffByDefault) {
  const EventOptions options;
  EXPECT_FALSE(options.enable_timing || options.blocking || options.interprocess);
  const Stream stream = Stream::create();
  Event plain;
  plain.record(stream);
  stream.synchronize();
  EXPECT_THROW(static_cast<void>(plain.elapsed_time(plain)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(plain.ipc_handle()), InvalidArgument);
}

TEST_F(TorchCuda, ElapsedTimeIsInMilliseconds) {
  const Stream stream = Stream::create();
  Event start(EventOptions{.enable_timing = true});
  Event end_event(EventOptions{.enable_timing = true});
  start.record(stream);
  for (int i = 0; i < 3; ++i) work(stream);
  end_event.record(stream);
  EXPECT_THROW(static_cast<void>(start.elapsed_time(end_event)), NotReady);
  stream.synchronize();
  EXPECT_FLOAT_EQ(start.elapsed_time(end_event), 3.0F);
  EXPECT_THROW(static_cast<void>(start.elapsed_time(Event(EventOptions{.enable_timing = true}))), InvalidArgument);
}

TEST_F(TorchCuda, ExportMakesTheEventOnTheCurrentDevice) {
  set_device(1);
  Event event(EventOptions{.interprocess = true});
  EXPECT_FALSE(event.is_created());
  static_cast<void>(event.ipc_handle());
  EXPECT_TRUE(event.is_created());
  EXPECT_EQ(event.device(), Device(1));
}

TEST_F(TorchCuda, AnEventCompletesWithTheWorkItCaptured) {
  const Stream stream = Stream::create();
  Event event;
  note(stream, 1);
  event.record(stream);
  note(stream, 2);
  EXPECT_FALSE(event.query());
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_THAT(ran, ElementsAre(1));
}

TEST_F(TorchCuda, AnEventIsRecordedOnTheCurrentStreamByDefault) {
  const Stream stream = Stream::create();
  const StreamGuard with(stream);
  work(stream);
  Event event;
  event.record();
  EXPECT_FALSE(event.query());
  stream.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(TorchCuda, IsAvailableMakesNoContext) {
  const auto retained = driver().calls("cuDevicePrimaryCtxRetain");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(is_available());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(driver().calls("cuDevicePrimaryCtxRetain"), retained);
}

}  // namespace
}  // namespace cistern
