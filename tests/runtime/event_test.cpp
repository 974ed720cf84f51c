// Events: made late, recorded on one device, waited for from anywhere.

#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/ipc.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/driver_api.h"
#include "tests/message_of.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What is no event, or no stream, does not compile.
template <class T>
concept CanBeRecorded = requires(const Stream& stream, T value) {
  stream.record_event(value);
};
template <class T>
concept CanBeWaitedFor = requires(const Stream& stream, T value) {
  stream.wait_event(value);
};
template <class T>
concept IsAStreamToWaitFor = requires(const Stream& stream, T value) {
  stream.wait_stream(value);
};
static_assert(CanBeRecorded<Event&> && CanBeWaitedFor<const Event&> && IsAStreamToWaitFor<const Stream&>);
static_assert(!CanBeRecorded<int> && !CanBeRecorded<const Stream&> && !CanBeRecorded<const Event&>);
static_assert(!CanBeRecorded<std::nullptr_t> && !CanBeRecorded<Event::Handle>);
static_assert(!CanBeWaitedFor<int> && !CanBeWaitedFor<const Stream&> && !CanBeWaitedFor<EventOptions>);
static_assert(!CanBeWaitedFor<std::nullptr_t> && !CanBeWaitedFor<Event::Handle>);
static_assert(!IsAStreamToWaitFor<int> && !IsAStreamToWaitFor<const Event&> && !IsAStreamToWaitFor<StreamHandle>);

class Events : public ProcessDevice {};

TEST_F(Events, AreMadeByTheFirstRecord) {
  const auto created = driver().calls("cuEventCreate");
  Event event;
  EXPECT_FALSE(event.is_created());
  EXPECT_TRUE(event.device().is_current());
  EXPECT_TRUE(event.query());
  event.synchronize();
  event.wait();
  event.wait(Stream());
  EXPECT_EQ(driver().calls("cuEventCreate"), created);
  event.record();
  EXPECT_TRUE(event.is_created());
  EXPECT_EQ(event.device(), Device(0));
  EXPECT_EQ(driver().calls("cuEventCreate"), created + 1);
}

TEST_F(Events, RecordWithoutAStreamTakesTheCurrentOneOfTheirDevice) {
  const Stream there = Stream::create({.device = 1});
  Event event;
  {
    const StreamGuard guard(there);
    event.record();
    EXPECT_EQ(event.device(), Device(1));
  }
  set_stream(there);
  set_device(0);
  occupy(there);
  event.record();
  EXPECT_FALSE(event.query());
}

TEST_F(Events, RecordOnAnotherDeviceIsRefusedNamingBoth) {
  Event event = default_stream(0).record_event();
  EXPECT_THAT(message_of([&] { event.record(default_stream(1)); }),
              AllOf(HasSubstr("on device 0"), HasSubstr("of device 1")));
  const DeviceGuard guard(1);
  EXPECT_THROW(event.record(Stream::null()), InvalidArgument);
  event.record();
  EXPECT_EQ(event.device(), Device(0));
}

TEST_F(Events, AreWaitedForFromAnyDevice) {
  const Stream first = Stream::create({.device = 0});
  const Stream second = Stream::create({.device = 1});
  std::vector<int> order;
  simulated::launch(first, {}, {}, std::chrono::milliseconds(1), [&] { order.push_back(1); });
  const Event event = first.record_event();
  event.wait(second);
  simulated::launch(second, {}, {}, std::chrono::milliseconds(1), [&] { order.push_back(2); });
  second.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(Events, WaitWithoutAStreamMakesTheCurrentOneWait) {
  const Stream busy = Stream::create();
  const Stream waiting = Stream::create();
  occupy(busy);
  const Event event = busy.record_event();
  const StreamGuard guard(waiting);
  event.wait();
  EXPECT_FALSE(waiting.query());
  waiting.synchronize();
  EXPECT_TRUE(busy.query());
}

TEST_F(Events, RecordingAgainReplacesWhatLaterWaitsSee) {
  const Stream first = Stream::create();
  const Stream early = Stream::create();
  const Stream late = Stream::create();
  Event event = first.record_event();
  early.wait_event(event);
  occupy(first);
  event.record(first);
  late.wait_event(event);
  EXPECT_TRUE(early.query());
  EXPECT_FALSE(late.query());
  EXPECT_FALSE(event.query());
  event.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_TRUE(late.query());
}

TEST_F(Events, WaitsStayInForceAfterDestruction) {
  const Stream busy = Stream::create();
  const Stream waiting = Stream::create();
  occupy(busy);
  {
    const Event event = busy.record_event();
    event.wait(waiting);
  }
  EXPECT_FALSE(waiting.query());
  waiting.synchronize();
  EXPECT_TRUE(busy.query());
}

TEST_F(Events, AreDestroyedOnceAndMoveTheirOwnership) {
  const auto destroyed = driver().calls("cuEventDestroy");
  {
    Event first = Stream().record_event();
    Event second = std::move(first);
    EXPECT_FALSE(first.is_created());  // NOLINT(bugprone-use-after-move): what is left is stated
    EXPECT_THROW(first.record(), InvalidArgument);
    EXPECT_TRUE(second.is_created());
    second = Stream().record_event();
    EXPECT_EQ(driver().calls("cuEventDestroy"), destroyed + 1);
  }
  EXPECT_EQ(driver().calls("cuEventDestroy"), destroyed + 2);
}

TEST_F(Events, ElapsedTimeIsTheDevices) {
  const Stream stream = Stream::create();
  Event start(EventOptions{.enable_timing = true});
  Event end(EventOptions{.enable_timing = true});
  start.record(stream);
  simulated::launch(stream, {}, {}, std::chrono::microseconds(2500), [] {});
  end.record(stream);
  EXPECT_THROW(static_cast<void>(start.elapsed_time(end)), NotReady);
  end.synchronize();
  EXPECT_FLOAT_EQ(start.elapsed_time(end), 2.5F);
}

TEST_F(Events, ElapsedTimeThatDoesNotExistIsRefused) {
  const EventOptions timed{.enable_timing = true};
  Event start(timed);
  Event end(timed);
  EXPECT_THAT(message_of([&] { static_cast<void>(start.elapsed_time(end)); }),
              HasSubstr("first event was not recorded"));
  start.record();
  EXPECT_THAT(message_of([&] { static_cast<void>(start.elapsed_time(end)); }),
              HasSubstr("second event was not recorded"));
  const Event untimed = Stream().record_event();
  EXPECT_THAT(message_of([&] { static_cast<void>(start.elapsed_time(untimed)); }), HasSubstr("enable_timing"));
  Event elsewhere(timed);
  elsewhere.record(default_stream(1));
  EXPECT_THAT(message_of([&] { static_cast<void>(start.elapsed_time(elsewhere)); }), HasSubstr("different devices"));
}

TEST_F(Events, InterprocessExcludesTiming) {
  EXPECT_THROW(Event(EventOptions{.enable_timing = true, .interprocess = true}), InvalidArgument);
  Event event(EventOptions{.blocking = true, .interprocess = true});
  event.record();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(Events, FirstRecordThatFailsLeavesNothingBehind) {
  Event event;
  driver().fail_call("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(event.record(), DriverError);
  EXPECT_FALSE(event.is_created());
  const auto destroyed = driver().calls("cuEventDestroy");
  driver().fail_call("cuEventRecord", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(event.record(), DriverError);
  EXPECT_FALSE(event.is_created());
  EXPECT_EQ(driver().calls("cuEventDestroy"), destroyed + 1);
  event.record(default_stream(1));
  EXPECT_EQ(event.device(), Device(1));
  driver().fail_call("cuEventRecord", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(event.record(), DriverError);
  EXPECT_TRUE(event.is_created());
}

TEST_F(Events, EveryFailingCallIsReportedByName) {
  Event event(EventOptions{.enable_timing = true});
  event.record();
  const auto expect_reported = [&](const char* entry, const std::function<void()>& action) {
    driver().fail_call(entry, 1, CUDA_ERROR_UNKNOWN);
    try {
      action();
      ADD_FAILURE() << entry << " failed unnoticed";
    } catch (const DriverError& error) {
      EXPECT_EQ(error.call(), entry);
      EXPECT_THAT(error.what(), HasSubstr("event 0x"));
    }
  };
  expect_reported("cuEventQuery", [&] { static_cast<void>(event.query()); });
  expect_reported("cuEventSynchronize", [&] { event.synchronize(); });
  expect_reported("cuStreamWaitEvent", [&] { event.wait(); });
  expect_reported("cuEventElapsedTime", [&] { static_cast<void>(event.elapsed_time(event)); });
}

TEST_F(Events, DestructionNeverThrows) {
  const auto faults = driver().faults_injected();
  driver().fail_call("cuEventDestroy", 1, CUDA_ERROR_DEINITIALIZED);
  { const Event event = Stream().record_event(); }
  driver().fail_call("cuStreamDestroy", 1, CUDA_ERROR_DEINITIALIZED);
  { const Stream stream = Stream::create(); }
  {
    const Event event = Stream().record_event();
    const Stream stream = Stream::create();
    driver().fail_call("cuCtxGetCurrent", 1, CUDA_ERROR_DEINITIALIZED);
    driver().fail_call("cuCtxGetCurrent", 2, CUDA_ERROR_DEINITIALIZED);
  }
  EXPECT_EQ(driver().faults_injected() - faults, 4U);
}

TEST_F(Events, AnyUseOfOneThatWasMovedFromIsRefused) {
  Event gone = Stream().record_event();
  const Event event = std::move(gone);
  // NOLINTBEGIN(bugprone-use-after-move): what is left is stated
  EXPECT_FALSE(gone.is_created());
  EXPECT_TRUE(gone.device().is_current());
  EXPECT_EQ(gone.native_handle(), nullptr);
  const std::vector<std::function<void()>> uses = {[&] { gone.record(); },
                                                   [&] { gone.record(Stream()); },
                                                   [&] { static_cast<void>(gone.query()); },
                                                   [&] { gone.synchronize(); },
                                                   [&] { gone.wait(); },
                                                   [&] { gone.wait(Stream()); },
                                                   [&] { Stream().wait_event(gone); },
                                                   [&] { static_cast<void>(gone.elapsed_time(event)); },
                                                   [&] { static_cast<void>(event.elapsed_time(gone)); },
                                                   [&] { static_cast<void>(gone.ipc_handle()); },
                                                   [&] { static_cast<void>(gone.options()); }};
  // NOLINTEND(bugprone-use-after-move)
  for (const auto& use : uses) {
    EXPECT_THROW(use(), InvalidArgument);
  }
  EXPECT_TRUE(event.query());
}

TEST_F(Events, PlainOnesAreThoseOfTheFrameworks) {
  const Stream stream = Stream::create();
  EXPECT_FALSE(stream.record_event().options().enable_timing);
  EXPECT_FALSE(stream.record_event(EventOptions::pytorch()).options().enable_timing);
  EXPECT_FALSE(stream.record_event(EventOptions::paddle()).options().enable_timing);
  EXPECT_FALSE(stream.record_event(EventOptions::mindspore()).options().enable_timing);
  const Event start = stream.record_event(EventOptions::cupy());
  occupy(stream);
  const Event end = stream.record_event(EventOptions::cupy());
  end.synchronize();
  EXPECT_FLOAT_EQ(start.elapsed_time(end), 1.0F);
}

TEST_F(Events, ViewIsUsedAndNotDestroyed) {
  const Stream stream = Stream::create({.device = 1});
  const Event owner = stream.record_event(EventOptions::cupy());
  const auto destroyed = driver().calls("cuEventDestroy");
  {
    Event view = Event::view(owner.native_handle(), 1);
    EXPECT_EQ(view.native_handle(), owner.native_handle());
    EXPECT_EQ(view.device(), Device(1));
    occupy(stream);
    view.record(stream);
    EXPECT_FALSE(owner.query());
    EXPECT_THROW(view.record(default_stream(0)), InvalidArgument);
    Stream::create().wait_event(view);
    view.synchronize();
    EXPECT_TRUE(owner.query());
    EXPECT_FLOAT_EQ(view.elapsed_time(owner), 0.0F);
  }
  EXPECT_EQ(driver().calls("cuEventDestroy"), destroyed);
  EXPECT_THROW(static_cast<void>(Event::view(nullptr, 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Event::view(owner.native_handle(), 9)), InvalidArgument);
}

TEST_F(Events, ExportOfOneThatIsNotInterprocessIsRefusedAndMakesNone) {
  const Event plain;
  const auto created = driver().calls("cuEventCreate");
  EXPECT_THAT(message_of([&] { static_cast<void>(plain.ipc_handle()); }), HasSubstr("`interprocess`"));
  EXPECT_FALSE(plain.is_created());
  const Event timed(EventOptions::cupy());
  EXPECT_THROW(static_cast<void>(timed.ipc_handle()), InvalidArgument);
  const Event owner = Stream().record_event(EventOptions{.interprocess = true});
  EXPECT_THROW(static_cast<void>(Event::view(owner.native_handle()).ipc_handle()), InvalidArgument);
  EXPECT_EQ(driver().calls("cuEventCreate"), created + 1);
}

TEST_F(Events, ExportMakesTheEventOnTheCurrentDevice) {
  const DeviceGuard guard(1);
  Event event(EventOptions{.interprocess = true});
  const EventHandle handle = event.ipc_handle();
  EXPECT_TRUE(event.is_created());
  EXPECT_EQ(event.device(), Device(1));
  EXPECT_EQ(handle.device(), device_properties(1).uuid);
  EXPECT_EQ(event.ipc_handle(), handle);
  EXPECT_THROW(event.record(default_stream(0)), InvalidArgument);
  event.record(default_stream(1));
  // The process that made it has the event itself.
  EXPECT_THROW(static_cast<void>(Event::from_ipc_handle(handle)), DriverError);
}

TEST_F(Events, ExportThatFailsLeavesNothingBehind) {
  const Event event(EventOptions{.interprocess = true});
  const auto destroyed = driver().calls("cuEventDestroy");
  driver().fail_call("cuIpcGetEventHandle", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(static_cast<void>(event.ipc_handle()), DriverError);
  EXPECT_FALSE(event.is_created());
  EXPECT_EQ(driver().calls("cuEventDestroy"), destroyed + 1);
}

TEST_F(Events, ImportNeedsADeviceOfThisProcess) {
  DeviceUuid nowhere{};
  nowhere.fill(0xee);
  EXPECT_THAT(message_of([&] { static_cast<void>(Event::from_ipc_handle(EventHandle({}, nowhere))); }),
              HasSubstr("GPU-eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee"));
  const EventHandle handle({}, device_properties(1).uuid);
  EXPECT_THAT(message_of([&] { static_cast<void>(Event::from_ipc_handle(0, handle)); }),
              AllOf(HasSubstr("device 0"), HasSubstr("device 1")));
  EXPECT_THROW(static_cast<void>(Event::from_ipc_handle(9, handle)), InvalidArgument);
}

}  // namespace
}  // namespace cistern
