// Host functions and callbacks: what they get, when they run, and what ends inside of them.

#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/host_memory.h>
#include <cistern/ipc.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/context.h"
#include "runtime/stream_access.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

class HostFunctions : public ProcessDevice {};

// Physical memory, as a process gets it that is sent its descriptor.
IpcMemory imported_memory(const DriverApi& api) {
  constexpr std::size_t bytes = std::size_t{2} << 20;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(api.mem_create(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  int descriptor = -1;
  EXPECT_EQ(api.mem_export_to_shareable_handle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
  const FileDescriptor sent(descriptor);
  EXPECT_EQ(api.mem_release(handle), CUDA_SUCCESS);
  return import_fd(sent.get(), bytes);
}

TEST_F(HostFunctions, GetTheirDataInOrder) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  stream.launch_host_func([](void* data) { static_cast<std::vector<int>*>(data)->push_back(1); }, &order);
  stream.launch_host_func([&order] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  stream.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(HostFunctions, CallbackGetsStreamStatusAndData) {
  const Stream stream = Stream::create({.device = 1});
  occupy(stream);
  int data = 0;
  std::optional<Stream> seen;
  int status = -1;
  stream.add_callback(
      [&](const Stream& its_stream, int its_status, void* user_data) {
        seen = its_stream;
        status = its_status;
        *static_cast<int*>(user_data) = 7;
      },
      &data);
  EXPECT_FALSE(seen.has_value());
  stream.synchronize();
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(*seen, stream);
  EXPECT_EQ(seen->id(), stream.id());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(data, 7);
}

TEST_F(HostFunctions, CallbackHoldsUpLaterWorkOfItsStream) {
  const Stream stream = Stream::create();
  std::vector<int> order;
  stream.add_callback([&](const Stream&, int, void*) { order.push_back(1); });
  simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [&] { order.push_back(2); });
  stream.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// A driver of its own: a device that failed stays so.
TEST(HostFunctionsOfAFailedDevice, CallbacksRunWithTheError) {
  SimulatedDriver driver;
  const Contexts contexts(driver.api());
  const Stream stream = StreamAccess::wrap(driver.api(), {driver.create_stream(), 1}, 0);
  driver.occupy(stream.native_handle(), std::chrono::milliseconds(1));
  int status = 0;
  stream.add_callback([&](const Stream&, int its_status, void*) { status = its_status; });
  driver.fail_device(0, CUDA_ERROR_LAUNCH_FAILED);
  driver.run_until_idle();
  EXPECT_EQ(status, CUDA_ERROR_LAUNCH_FAILED);
}

// The driver drops them and tells nobody.
TEST(HostFunctionsOfAFailedDevice, AreDestroyedByTheNextCallThatFindsTheFailure) {
  const auto finds = std::vector<std::function<void(const Stream&)>>{
      [](const Stream& stream) { stream.synchronize(); },
      [](const Stream& stream) { static_cast<void>(stream.query()); },
      [](const Stream& stream) { stream.launch_host_func([] {}); },
  };
  for (const auto& find : finds) {
    SimulatedDriver driver({.devices = 2, .capacity_bytes = std::size_t{1} << 30});
    const Contexts contexts(driver.api());
    const Stream stream = StreamAccess::wrap(driver.api(), {driver.create_stream(), 1}, 0);
    const Stream elsewhere = StreamAccess::wrap(driver.api(), {driver.create_stream(1), 2}, 1);
    auto held = std::make_shared<int>(0);
    auto held_elsewhere = std::make_shared<int>(0);
    const std::weak_ptr<int> watch = held;
    bool ran = false;
    stream.launch_host_func([held = std::move(held), &ran] { ran = true; });
    elsewhere.launch_host_func([held_elsewhere] { ++*held_elsewhere; });
    driver.fail_device(0, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_FALSE(watch.expired()) << "nothing has told of the failure";
    EXPECT_THROW(find(stream), DriverError);
    EXPECT_TRUE(watch.expired());
    EXPECT_FALSE(ran);
    elsewhere.synchronize();
    EXPECT_EQ(*held_elsewhere, 1) << "another device's function is not dropped";
  }
}

TEST(HostFunctionsOfAFailedDevice, AnErrorThatDoesNotStickLeavesThemToRun) {
  SimulatedDriver driver;
  const Contexts contexts(driver.api());
  const Stream stream = StreamAccess::wrap(driver.api(), {driver.create_stream(), 1}, 0);
  bool ran = false;
  stream.launch_host_func([&ran] { ran = true; });
  driver.fail_call("cuStreamQuery", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(static_cast<void>(stream.query()), DriverError);
  stream.synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(HostFunctions, EmptyOnesAreRefused) {
  const Stream stream = Stream::create();
  EXPECT_THROW(stream.launch_host_func(std::function<void()>()), InvalidArgument);
  EXPECT_THROW(stream.launch_host_func(std::function<void(void*)>(), nullptr), InvalidArgument);
  EXPECT_THROW(stream.add_callback({}), InvalidArgument);
}

TEST_F(HostFunctions, CallbackThatCannotBeQueuedIsReleasedAndReported) {
  const Stream stream = Stream::create();
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  driver().fail_call("cuStreamAddCallback", 1, CUDA_ERROR_UNKNOWN);
  try {
    stream.add_callback([held = std::move(held)](const Stream&, int, void*) {});
    FAIL() << "a failure went unnoticed";
  } catch (const DriverError& error) {
    EXPECT_EQ(error.call(), "cuStreamAddCallback");
    EXPECT_THAT(error.what(), HasSubstr(stream.to_string()));
  }
  EXPECT_TRUE(watch.expired());
}

// The last copies end inside of the function, where the driver allows no call.
TEST_F(HostFunctions, StreamsAndEventsThatEndInsideAreDestroyedLater) {
  const Stream stream = Stream::create();
  auto event = std::make_shared<Event>(stream.record_event());
  stream.launch_host_func([held = Stream::create(), event = std::move(event)] {});
  const auto streams = driver().calls("cuStreamDestroy");
  const auto events = driver().calls("cuEventDestroy");
  const auto refused = driver().calls_from_operations();
  driver().run_until_idle();
  EXPECT_EQ(driver().calls("cuStreamDestroy"), streams);
  EXPECT_EQ(driver().calls("cuEventDestroy"), events);
  EXPECT_EQ(driver().calls_from_operations(), refused);
  stream.synchronize();
  EXPECT_EQ(driver().calls("cuStreamDestroy"), streams + 1);
  EXPECT_EQ(driver().calls("cuEventDestroy"), events + 1);
}

TEST_F(HostFunctions, PageLockedMemoryThatEndsInsideIsFreedLater) {
  const Stream stream = Stream::create();
  std::vector<char> own(8192);
  const PinnedMemoryOptions of_the_driver{.write_combined = true};  // others go back to the cache
  stream.launch_host_func([memory = std::make_shared<PinnedMemory>(4096, of_the_driver),
                           cached = std::make_shared<PinnedMemory>(4096),
                           pages = std::make_shared<HostRegistration>(own.data(), own.size())] {});
  const auto freed = driver().calls("cuMemFreeHost");
  const auto unlocked = driver().calls("cuMemHostUnregister");
  const auto refused = driver().calls_from_operations();
  driver().run_until_idle();
  EXPECT_EQ(driver().calls("cuMemFreeHost"), freed);
  EXPECT_EQ(driver().calls("cuMemHostUnregister"), unlocked);
  EXPECT_EQ(driver().calls_from_operations(), refused);
  stream.synchronize();
  EXPECT_EQ(driver().calls("cuMemFreeHost"), freed + 1);
  EXPECT_EQ(driver().calls("cuMemHostUnregister"), unlocked + 1);
  EXPECT_FALSE(is_pinned(own.data()));
}

// The events of each thread end in its host functions, one after the other, while other threads
// destroy what waits by then: ThreadSanitizer sees it if the queue is not locked.
TEST_F(HostFunctions, WhatEndsInsideOnManyThreadsIsDestroyedOnce) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kRounds = 100;
  constexpr std::uint64_t kEvents = 16;
  const auto destroyed = driver().calls("cuEventDestroy");
  const auto refused = driver().calls_from_operations();
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([] {
      const Stream stream = Stream::create();
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        auto events = std::make_shared<std::vector<Event>>();
        for (std::uint64_t event = 0; event < kEvents; ++event) events->push_back(stream.record_event());
        stream.launch_host_func([events = std::move(events)] {
          for (; !events->empty(); std::this_thread::yield()) events->pop_back();
        });
        stream.synchronize();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  default_stream().synchronize();
  EXPECT_EQ(driver().calls("cuEventDestroy"), destroyed + kThreads * kRounds * kEvents);
  EXPECT_EQ(driver().calls_from_operations(), refused);
}

TEST_F(HostFunctions, PageLockedMemoryThatWasMovedFromIsEmpty) {
  std::vector<char> own(8192);
  const auto freed = driver().calls("cuMemFreeHost");
  {
    PinnedMemory memory(4096, {.mapped = true, .write_combined = true});
    const PinnedMemory taken = std::move(memory);
    // NOLINTBEGIN(bugprone-use-after-move): what is left is stated
    EXPECT_TRUE(memory.empty());
    EXPECT_EQ(memory.size(), 0U);
    EXPECT_TRUE(memory.options().mapped);
    EXPECT_THROW(static_cast<void>(memory.device_pointer()), InvalidArgument);
    HostRegistration pages(own.data(), own.size());
    const HostRegistration others = std::move(pages);
    EXPECT_TRUE(pages.empty());
    pages.reset();
    // NOLINTEND(bugprone-use-after-move)
    EXPECT_TRUE(is_pinned(own.data()));
  }
  EXPECT_EQ(driver().calls("cuMemFreeHost"), freed + 1);
  EXPECT_FALSE(is_pinned(own.data()));
}

// The simulated device has no such registrations, and says so.
TEST_F(HostFunctions, MemoryThatADeviceIsOnlyToReadIsRegisteredAsThatOrNotAtAll) {
  std::vector<char> own(8192);
  EXPECT_THROW(HostRegistration(own.data(), own.size(), {.read_only = true}), DriverError);
  EXPECT_FALSE(is_pinned(own.data()));
  const HostRegistration pages(own.data(), own.size());
  EXPECT_TRUE(is_pinned(own.data()));
}

TEST_F(HostFunctions, MemoryOfOtherProcessesThatEndsInsideIsUnmappedLater) {
  const Stream stream = Stream::create();
  auto memory = std::make_unique<IpcMemory>(imported_memory(driver().api()));
  stream.launch_host_func([&memory] { memory.reset(); });
  const auto unmapped = driver().calls("cuMemUnmap");
  const auto refused = driver().calls_from_operations();
  driver().run_until_idle();
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(driver().calls("cuMemUnmap"), unmapped);
  EXPECT_EQ(driver().calls_from_operations(), refused);
  stream.synchronize();
  EXPECT_EQ(driver().calls("cuMemUnmap"), unmapped + 1);
}

TEST_F(HostFunctions, MemoryOfOtherProcessesThatWasMovedFromIsEmpty) {
  IpcMemory memory = imported_memory(driver().api());
  const void* data = memory.data();
  IpcMemory taken(std::move(memory));
  EXPECT_TRUE(memory.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(memory.size(), 0U);
  EXPECT_TRUE(memory.device().is_current());
  EXPECT_NO_THROW(memory.release());
  EXPECT_EQ(taken.data(), data);
  const auto unmapped = driver().calls("cuMemUnmap");
  IpcMemory other = imported_memory(driver().api());
  other = std::move(taken);
  EXPECT_EQ(driver().calls("cuMemUnmap"), unmapped + 1) << "what it was before ends at once";
  EXPECT_TRUE(taken.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(other.data(), data);
}

TEST_F(HostFunctions, CallbackDoesNotKeepItsStream) {
  const auto destroyed = driver().calls("cuStreamDestroy");
  {
    const Stream stream = Stream::create();
    stream.add_callback([](const Stream&, int, void*) {});
  }
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
  driver().run_until_idle();
}

// A kernel of the user's is no function of ours: the driver's refusal tells.
TEST_F(HostFunctions, StreamThatEndsInAKernelIsDestroyedLater) {
  const Stream stream = Stream::create();
  auto held = std::make_unique<Stream>(Stream::create());
  simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [&held] { held.reset(); });
  driver().run_until_idle();
  EXPECT_EQ(held, nullptr);
  const std::uint64_t destroyed = driver().calls("cuStreamDestroy");
  static_cast<void>(stream.record_event());
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
}

}  // namespace
}  // namespace cistern
