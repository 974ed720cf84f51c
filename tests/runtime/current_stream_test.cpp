// The current stream of each device, and the guard.

#include <cistern/error.h>

#include <optional>
#include <thread>

#include "runtime/stream_access.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

class CurrentStreams : public ProcessDevice {};

TEST_F(CurrentStreams, AreTheDefaultStreamsAtFirst) {
  EXPECT_EQ(current_stream(), default_stream());
  EXPECT_EQ(current_stream(1), default_stream(1));
  EXPECT_EQ(default_stream(1).device(), Device(1));
  EXPECT_EQ(default_stream(1).native_handle(), nullptr);
  EXPECT_THROW(static_cast<void>(current_stream(9)), InvalidArgument);
}

TEST_F(CurrentStreams, AreOneADeviceAndAThread) {
  const Stream here = Stream::create({.device = 0});
  const Stream there = Stream::create({.device = 1});
  set_stream(here);
  set_stream(there);
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_EQ(current_stream(0), here);
  EXPECT_EQ(current_stream(1), there);
  std::thread([] {
    EXPECT_EQ(current_stream(0), default_stream(0));
    EXPECT_EQ(current_stream(1), default_stream(1));
  }).join();
}

TEST_F(CurrentStreams, KeepTheStreamAlive) {
  const auto destroyed = driver().calls("cuStreamDestroy");
  set_stream(Stream::create());
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed);
  EXPECT_TRUE(current_stream().query());
  set_stream(default_stream());
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
}

TEST_F(CurrentStreams, OfAThreadEndWithIt) {
  const auto destroyed = driver().calls("cuStreamDestroy");
  std::thread([] { set_stream(Stream::create({.device = 1})); }).join();
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
}

TEST_F(CurrentStreams, DefaultStreamIsThatOfTheCurrentDeviceWhenItIsSet) {
  const DeviceGuard device(1);
  set_stream(Stream::create());
  set_stream(Stream::null());
  EXPECT_EQ(current_stream(), default_stream(1));
  set_stream(Stream::per_thread());
  EXPECT_EQ(current_stream().native_handle(), Stream::per_thread().native_handle());
  EXPECT_EQ(current_stream().device(), Device(1));
  set_device(0);
  EXPECT_EQ(current_stream().device(), Device(0));
  EXPECT_EQ(current_stream(), default_stream(0));
}

TEST_F(CurrentStreams, GuardSwitchesDeviceAndStreamAndRestoresBoth) {
  const Stream before = Stream::create({.device = 1});
  set_stream(before);
  set_device(0);
  const Stream stream = Stream::create({.device = 1});
  {
    const StreamGuard guard(stream);
    EXPECT_EQ(current_device(), Device(1));
    EXPECT_EQ(current_stream(), stream);
  }
  EXPECT_EQ(current_device(), Device(0));
  EXPECT_EQ(current_stream(0), default_stream(0));
  EXPECT_EQ(current_stream(1), before);
}

TEST_F(CurrentStreams, GuardsNestAndAreReentered) {
  const Stream stream = Stream::create();
  const StreamGuard outer(stream);
  {
    const StreamGuard inner(Stream::create({.device = 1}));
    const StreamGuard again(stream);
    EXPECT_EQ(current_stream(), stream);
    EXPECT_EQ(current_device(), Device(0));
  }
  EXPECT_EQ(current_stream(), stream);
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(CurrentStreams, GuardRestoresOnAnExceptionToo) {
  try {
    const StreamGuard guard(Stream::create({.device = 1}));
    throw NotReady("on purpose");
  } catch (const NotReady&) {
  }
  EXPECT_EQ(current_device(), Device(0));
  EXPECT_EQ(current_stream(1), default_stream(1));
}

TEST_F(CurrentStreams, GuardOfNoneDoesNothing) {
  const std::optional<Stream> none;
  const Stream stream = Stream::create({.device = 1});
  {
    const StreamGuard guard(none);
    EXPECT_FALSE(guard.original_stream().has_value());
    EXPECT_EQ(current_device(), Device(0));
    set_stream(stream);
  }
  EXPECT_EQ(current_stream(), stream);
  const StreamGuard guard(std::optional<Stream>(default_stream(0)));
  EXPECT_EQ(current_stream(), default_stream(0));
  EXPECT_EQ(guard.original_stream(), stream);
}

TEST_F(CurrentStreams, GuardRestoresBothDevicesStreamsWhateverWasSetInside) {
  const Stream here = Stream::create({.device = 0});
  const Stream there = Stream::create({.device = 1});
  set_stream(there);
  set_stream(here);
  {
    const StreamGuard guard(Stream::create({.device = 1}));
    set_stream(Stream::create({.device = 0}));
    set_stream(Stream::create({.device = 1}));
  }
  EXPECT_EQ(current_device(), Device(0));
  EXPECT_EQ(current_stream(0), here);
  EXPECT_EQ(current_stream(1), there);
}

TEST_F(CurrentStreams, GuardOfAStreamThatCannotBeCurrentChangesNothing) {
  SimulatedDriver other;
  const Stream foreign = StreamAccess::wrap(other.api(), {}, 1);
  EXPECT_THROW(StreamGuard{foreign}, InvalidArgument);
  EXPECT_EQ(current_device(), Device(0));
  EXPECT_EQ(current_stream(1), default_stream(1));
}

TEST_F(CurrentStreams, UseMakesAStreamTheCurrentOne) {
  const Stream stream = Stream::create({.device = 1});
  EXPECT_EQ(stream.use(), stream);
  EXPECT_EQ(current_device(), Device(1));
  EXPECT_EQ(current_stream(), stream);
}

}  // namespace
}  // namespace cistern
