// Streams: made, shared, wrapped, compared, and the order of their work.

#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/memory.h>
#include <gmock/gmock.h>

#include <memory>
#include <set>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/process_driver.h"
#include "runtime/stream_access.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

class Streams : public ProcessDevice {};

TEST_F(Streams, CreatedStreamIsDestroyedWithItsLastCopy) {
  const auto destroyed = driver().calls("cuStreamDestroy");
  {
    Stream copy;
    {
      const Stream stream = Stream::create();
      copy = stream;
    }
    EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed);
    EXPECT_TRUE(copy.query());
  }
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
}

// A handle without its owner would name a stream that is gone.
TEST_F(Streams, OneThatWasMovedFromIsTheSameStreamStill) {
  const auto destroyed = driver().calls("cuStreamDestroy");
  {
    Stream stream = Stream::create();
    const StreamHandle handle = stream.native_handle();
    {
      const Stream moved = std::move(stream);
      Stream assigned;
      assigned = std::move(stream);
      EXPECT_EQ(assigned, moved);
    }
    EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed) << "it keeps the stream";
    EXPECT_EQ(stream.native_handle(), handle);  // NOLINT(bugprone-use-after-move): what is left is stated
    occupy(stream);
    stream.synchronize();
  }
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
}

TEST_F(Streams, WorkOnADestroyedStreamStillCompletes) {
  bool ran = false;
  {
    const Stream stream = Stream::create();
    simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [&] { ran = true; });
  }
  synchronize();
  EXPECT_TRUE(ran);
}

TEST_F(Streams, HandleThatIsReusedHasAnotherId) {
  const Stream first = Stream::create();
  const std::uint64_t id = first.id();
  std::set<std::uint64_t> ids = {id};
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(ids.insert(Stream::create().id()).second);
  EXPECT_EQ(first.id(), id);
}

TEST_F(Streams, OptionsSayDevicePriorityAndBlocking) {
  const Stream plain = Stream::create();
  EXPECT_EQ(plain.device(), Device(0));
  EXPECT_EQ(plain.priority(), 0);
  EXPECT_TRUE(plain.is_non_blocking());
  const Stream other = Stream::create({.device = 1, .priority = -2, .non_blocking = false});
  EXPECT_EQ(other.device(), Device(1));
  EXPECT_EQ(other.priority(), -2);
  EXPECT_FALSE(other.is_non_blocking());
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(Streams, PriorityBeyondTheDevicesRangeIsClamped) {
  int least = 0;
  int greatest = 0;
  const ContextGuard context(process_driver(), process_contexts().primary(0));
  ASSERT_EQ(process_driver().ctx_get_stream_priority_range(&least, &greatest), CUDA_SUCCESS);
  EXPECT_EQ(Stream::create({.priority = 100}).priority(), least);
  EXPECT_EQ(Stream::create({.priority = -100}).priority(), greatest);
}

TEST_F(Streams, FailedCreationLeavesNoStreamBehind) {
  driver().fail_call("cuStreamGetId", 1, CUDA_ERROR_UNKNOWN);
  const auto destroyed = driver().calls("cuStreamDestroy");
  EXPECT_THROW(static_cast<void>(Stream::create()), DriverError);
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
  EXPECT_THROW(static_cast<void>(Stream::create({.device = 9})), InvalidArgument);
}

TEST_F(Streams, PoolHandsOut32InTurn) {
  std::vector<Stream> round;
  for (int i = 0; i < 32; ++i) round.push_back(Stream::from_pool());
  EXPECT_EQ(std::set<Stream>(round.begin(), round.end()).size(), 32U);
  for (const Stream& stream : round) EXPECT_EQ(Stream::from_pool(), stream);
  EXPECT_TRUE(round.front().is_non_blocking());
  EXPECT_TRUE(Stream::from_pool({.non_blocking = false}).is_non_blocking());
}

TEST_F(Streams, PoolsOfDevicesAndPrioritiesAreApart) {
  EXPECT_EQ(Stream::from_pool({.device = 1}).device(), Device(1));
  EXPECT_EQ(Stream::from_pool({.priority = -1}).priority(), -1);
  EXPECT_EQ(Stream::from_pool({.priority = -100}).priority(), -3);
  EXPECT_EQ(Stream::from_pool({.priority = 5}).priority(), 0);
  EXPECT_THROW(static_cast<void>(Stream::from_pool({.device = 9})), InvalidArgument);
}

TEST_F(Streams, PoolThatCouldNotBeFilledIsMadeAgain) {
  const auto created = driver().calls("cuStreamCreateWithPriority");
  const auto destroyed = driver().calls("cuStreamDestroy");
  driver().fail_call("cuStreamCreateWithPriority", 20, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(static_cast<void>(Stream::from_pool({.device = 1, .priority = -2})), DriverError);
  EXPECT_EQ(driver().calls("cuStreamCreateWithPriority") - created, 20U);
  EXPECT_EQ(driver().calls("cuStreamDestroy") - destroyed, 19U);
  EXPECT_EQ(Stream::from_pool({.device = 1, .priority = -2}).priority(), -2);
}

TEST_F(Streams, DefaultStreamsAreViewsOfTheCurrentDevice) {
  EXPECT_EQ(Stream::null(), Stream());
  EXPECT_EQ(Stream::null().to_string(), "<Stream 0 (device -1)>");
  EXPECT_EQ(Stream::per_thread().to_string(), "<Stream 2 (device -1)>");
  EXPECT_TRUE(Stream().device().is_current());
  EXPECT_FALSE(Stream().is_non_blocking());
  const DeviceGuard guard(1);
  occupy(Stream::null());
  EXPECT_FALSE(Stream::null().query());
  {
    const DeviceGuard other(0);
    EXPECT_TRUE(Stream::null().query());
  }
  Stream::null().synchronize();
  EXPECT_TRUE(Stream::null().query());
}

TEST_F(Streams, PerThreadStreamIsAnotherOneOnEachThread) {
  const std::uint64_t here = Stream::per_thread().id();
  EXPECT_EQ(Stream::per_thread().id(), here);
  std::thread([here] { EXPECT_NE(Stream::per_thread().id(), here); }).join();
  const DeviceGuard guard(1);
  EXPECT_NE(Stream::per_thread().id(), here);
}

TEST_F(Streams, LegacyStreamHasOneIdentityWhateverItsHandle) {
  EXPECT_EQ(Stream().id(), kLegacyStreamId);
  const Stream by_handle = Stream::external(reinterpret_cast<StreamHandle>(std::uintptr_t{1}), 1);
  EXPECT_EQ(by_handle.id(), kLegacyStreamId);
  EXPECT_EQ(by_handle, Stream::external(nullptr, 1));
  EXPECT_EQ(by_handle, default_stream(1));
}

TEST_F(Streams, ExternalStreamKeepsItsOwnerUntilTheLastCopy) {
  const StreamHandle handle = driver().create_stream(1);
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owner;
  const auto destroyed = driver().calls("cuStreamDestroy");
  {
    Stream copy;
    {
      const Stream stream = Stream::external(handle, 1, std::move(owner));
      EXPECT_EQ(stream.native_handle(), handle);
      EXPECT_EQ(stream.device(), Device(1));
      copy = stream;
    }
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed);
  EXPECT_THROW(static_cast<void>(Stream::external(handle, 9)), InvalidArgument);
  driver().destroy_stream(handle);
}

TEST_F(Streams, CompareByDeviceAndHandle) {
  const Stream a = Stream::create();
  const Stream b = Stream::create({.device = 1});
  const Stream copy = a;
  EXPECT_EQ(a, copy);
  EXPECT_EQ(a.hash(), copy.hash());
  EXPECT_NE(a, b);
  EXPECT_NE(default_stream(0), default_stream(1));
  EXPECT_TRUE(a < b && b > a && a <= copy && a >= copy && !(a < copy));
  EXPECT_LT(Stream(), default_stream(0));
  const std::unordered_set<Stream> streams = {a, b, copy};
  EXPECT_EQ(streams.size(), 2U);
}

TEST_F(Streams, WaitStreamWaitsForWhatIsThereAtTheCall) {
  const Stream first = Stream::create();
  const Stream second = Stream::create();
  std::vector<int> order;
  const auto note = [&](const Stream& stream, int number) {
    simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [&order, number] { order.push_back(number); });
  };
  note(first, 1);
  second.wait_stream(first);
  note(first, 3);
  note(second, 2);
  second.synchronize();
  first.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(Streams, OrderingCallsNeverBlockTheHost) {
  const Stream first = Stream::create();
  const Stream second = Stream::create({.device = 1});
  occupy(first);
  const auto waits = driver().host_synchronizations();
  const Event event = first.record_event();
  second.wait_event(event);
  second.wait_stream(first);
  EXPECT_FALSE(first.done());
  EXPECT_EQ(driver().host_synchronizations(), waits);
  second.synchronize();
  EXPECT_TRUE(first.done());
  EXPECT_EQ(driver().host_synchronizations(), waits + 1);
}

TEST_F(Streams, HostFunctionRunsInOrderAndIsReleased) {
  const Stream stream = Stream::create();
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  std::vector<int> order;
  simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [&] { order.push_back(1); });
  stream.launch_host_func([&order, held = std::move(held)] { order.push_back(2); });
  EXPECT_FALSE(watch.expired());
  stream.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_TRUE(watch.expired());
}

TEST_F(Streams, HostFunctionThatCannotBeQueuedIsReleasedAndReported) {
  const Stream stream = Stream::create();
  EXPECT_THROW(stream.launch_host_func({}), InvalidArgument);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  driver().fail_call("cuLaunchHostFunc", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(stream.launch_host_func([held = std::move(held)] {}), DriverError);
  EXPECT_TRUE(watch.expired());
}

TEST_F(Streams, EveryFailingCallIsReportedByName) {
  const Stream stream = Stream::create();
  const auto expect_reported = [&](const char* entry, const std::function<void()>& action) {
    driver().fail_call(entry, 1, CUDA_ERROR_UNKNOWN);
    try {
      action();
      ADD_FAILURE() << entry << " failed unnoticed";
    } catch (const DriverError& error) {
      EXPECT_EQ(error.call(), entry);
      EXPECT_THAT(error.what(), HasSubstr(stream.to_string()));
    }
  };
  expect_reported("cuStreamQuery", [&] { static_cast<void>(stream.query()); });
  expect_reported("cuStreamSynchronize", [&] { stream.synchronize(); });
  expect_reported("cuStreamGetPriority", [&] { static_cast<void>(stream.priority()); });
  expect_reported("cuStreamGetFlags", [&] { static_cast<void>(stream.is_non_blocking()); });
  expect_reported("cuEventRecord", [&] { static_cast<void>(stream.record_event()); });
  expect_reported("cuStreamWaitEvent", [&] { stream.wait_stream(Stream()); });
}

// A driver of one's own: a Stream over it works without the process's driver.
TEST(StreamsOfAnotherDriver, WorkOnTheirOwnDriver) {
  SimulatedDriver driver({.devices = 2, .capacity_bytes = std::size_t{64} << 20});
  Contexts contexts(driver.api());
  const StreamHandle handle = driver.create_stream(1);
  StreamIdentity identity;
  {
    const ContextGuard context(driver.api(), contexts.primary(1));
    ASSERT_EQ(identify_stream(driver.api(), handle, &identity), CUDA_SUCCESS);
  }
  const Stream stream = StreamAccess::wrap(driver.api(), identity, 1);
  EXPECT_EQ(stream.id(), identity.id);
  driver.occupy(handle, std::chrono::milliseconds(1));
  EXPECT_FALSE(stream.query());
  Event event(EventOptions{.enable_timing = true});
  event.record(stream);
  EXPECT_EQ(event.device(), Device(1));
  EXPECT_FALSE(event.query());
  const Stream legacy = StreamAccess::wrap(driver.api(), {}, 1);
  legacy.wait_event(event);
  stream.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_THROW(event.record(), InvalidArgument);
}

TEST(StreamsOfAnotherDriver, GiveBackTheContextsTheyHeld) {
  SimulatedDriver driver;
  const Contexts contexts(driver.api());
  {
    const Stream stream = StreamAccess::wrap(driver.api(), {}, 0);
    EXPECT_TRUE(stream.query());
    const Event event = stream.record_event();
    EXPECT_TRUE(event.query());
  }
  EXPECT_EQ(driver.calls("cuDevicePrimaryCtxRetain"), driver.calls("cuDevicePrimaryCtxRelease"));
}

TEST_F(Streams, OfAnotherDriverDoNotMixWithTheProcesss) {
  SimulatedDriver other;
  const Stream foreign = StreamAccess::wrap(other.api(), {}, 0);
  EXPECT_THROW(set_stream(foreign), InvalidArgument);
  Event ours = Stream().record_event();
  EXPECT_THROW(foreign.wait_event(ours), InvalidArgument);
  EXPECT_THROW(ours.record(foreign), InvalidArgument);
}

TEST_F(Streams, WrappedStreamOfTheProcesssDriverIsAnOrdinaryOne) {
  const Stream stream = Stream::create({.device = 1});
  const Stream wrapped = StreamAccess::wrap(process_driver(), StreamAccess::identity(stream), 1);
  EXPECT_EQ(wrapped, stream);
  const StreamGuard guard(wrapped);
  EXPECT_EQ(current_stream(), stream);
}

TEST_F(Streams, CopiesAndFillsMoveRealBytesInOrder) {
  const ContextGuard context(process_driver(), process_contexts().primary(0));
  CUdeviceptr address = 0;
  ASSERT_EQ(process_driver().mem_alloc(&address, 4096), CUDA_SUCCESS);
  auto* memory = reinterpret_cast<void*>(address);
  const Stream stream = Stream::create();
  std::vector<unsigned char> back(8, 0);
  fill_async(memory, 0xab, 4096, stream);
  copy_async(back.data(), memory, 4, stream);
  fill_async(memory, 0xcd, 4, stream);
  copy_async(back.data() + 4, memory, 4, stream);
  copy_async(nullptr, nullptr, 0, stream);
  fill_async(nullptr, 0, 0, stream);
  stream.synchronize();
  EXPECT_EQ(back, (std::vector<unsigned char>{0xab, 0xab, 0xab, 0xab, 0xcd, 0xcd, 0xcd, 0xcd}));
  ASSERT_EQ(process_driver().mem_free(address), CUDA_SUCCESS);
}

TEST_F(Streams, FillsOfTwoBytesCountValuesAndAreAligned) {
  const ContextGuard context(process_driver(), process_contexts().primary(0));
  CUdeviceptr address = 0;
  ASSERT_EQ(process_driver().mem_alloc(&address, 4096), CUDA_SUCCESS);
  auto* const memory = reinterpret_cast<unsigned char*>(address);
  const Stream stream = Stream::create();
  fill_async(memory, 0, 8, stream);
  fill16_async(memory + 2, 0xabcd, 2, stream);
  fill16_async(nullptr, 0xabcd, 0, stream);
  std::vector<unsigned char> back(8, 1);
  copy_async(back.data(), memory, 8, stream);
  stream.synchronize();
  EXPECT_EQ(back, (std::vector<unsigned char>{0, 0, 0xcd, 0xab, 0xcd, 0xab, 0, 0}));
  EXPECT_THROW(fill16_async(memory + 1, 0, 1, stream), InvalidArgument);
  ASSERT_EQ(process_driver().mem_free(address), CUDA_SUCCESS);
}

TEST_F(Streams, FailedCopyNamesItsRange) {
  const Stream stream = Stream::create();
  int value = 0;
  driver().fail_call("cuMemcpyAsync", 1, CUDA_ERROR_INVALID_VALUE);
  try {
    copy_async(&value, &value, sizeof value, stream);
    FAIL() << "a failure went unnoticed";
  } catch (const DriverError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuMemcpyAsync of 4 bytes from 0x"));
  }
  driver().fail_call("cuMemsetD8Async", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THROW(fill_async(&value, 0, sizeof value, stream), DriverError);
}

}  // namespace
}  // namespace cistern
