// cupy.cuda.Stream.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <set>
#include <stdexcept>
#include <string>

#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CupyStream : public FrameworkDevice {};

TEST_F(CupyStream, APlainStreamIsANewOne) {
  std::set<Stream> streams;
  std::vector<Stream> alive;
  for (int i = 0; i < 40; ++i) streams.insert(alive.emplace_back(Stream::from_flags({})));
  EXPECT_EQ(streams.size(), 40U);
  EXPECT_FALSE(alive.front().is_non_blocking());  // CuPy's own default
  EXPECT_TRUE(Stream::create().is_non_blocking());
}

TEST_F(CupyStream, TheHandleIsDestroyedWithTheLastCopy) {
  const auto destroyed = driver().calls("cuStreamDestroy");
  {
    Stream copy;
    {
      const Stream stream = Stream::from_flags({});
      copy = stream;
      note(stream, 1);
    }
    EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed);
  }
  EXPECT_EQ(driver().calls("cuStreamDestroy"), destroyed + 1);
  synchronize();
  EXPECT_THAT(ran, ElementsAre(1));
}

TEST_F(CupyStream, NullWinsOverPtdsAndBothIgnoreNonBlocking) {
  for (const bool non_blocking : {false, true}) {
    EXPECT_EQ(Stream::from_flags({.null = true, .non_blocking = non_blocking, .per_thread = true}), Stream::null());
    EXPECT_EQ(Stream::from_flags({.null = true, .non_blocking = non_blocking}), Stream::null());
    EXPECT_EQ(Stream::from_flags({.non_blocking = non_blocking, .per_thread = true}), Stream::per_thread());
  }
  EXPECT_FALSE(Stream::null().is_non_blocking());
  EXPECT_FALSE(Stream::per_thread().is_non_blocking());
}

TEST_F(CupyStream, NonBlockingStreamsDoNotSynchroniseWithTheNullStream) {
  const Stream blocking = Stream::from_flags({});
  const Stream non_blocking = Stream::from_flags({.non_blocking = true});
  EXPECT_FALSE(blocking.is_non_blocking());
  EXPECT_TRUE(non_blocking.is_non_blocking());
  note(non_blocking, 1);
  note(blocking, 2);
  note(Stream::null(), 3);
  Stream::null().synchronize();
  EXPECT_THAT(ran, ElementsAre(2, 3));
}

TEST_F(CupyStream, LowerNumbersAreHigherPriorities) {
  const Stream plain = Stream::from_flags({});
  const Stream urgent = Stream::from_flags({.priority = -1});
  EXPECT_EQ(plain.priority(), 0);
  EXPECT_EQ(urgent.priority(), -1);
  note(plain, 0);
  note(urgent, -1);
  driver().run_until_idle();
  EXPECT_THAT(ran, ElementsAre(-1, 0));
}

TEST_F(CupyStream, PtrIsTheRawHandle) {
  EXPECT_EQ(Stream::null().native_handle(), nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(Stream::per_thread().native_handle()), 2U);
  EXPECT_NE(Stream::from_flags({}).native_handle(), nullptr);
}

TEST_F(CupyStream, DeviceIdIsMinusOneForTheSingletons) {
  EXPECT_EQ(Stream::null().device().index(), -1);
  EXPECT_EQ(Stream::per_thread().device().index(), -1);
  const DeviceGuard other(1);
  EXPECT_EQ(Stream::from_flags({}).device().index(), 1);
}

TEST_F(CupyStream, TheSingletonsArePrintedWithDeviceMinusOne) {
  EXPECT_EQ(Stream::null().to_string(), "<Stream 0 (device -1)>");
  EXPECT_EQ(Stream::per_thread().to_string(), "<Stream 2 (device -1)>");
}

TEST_F(CupyStream, EnteringMakesCurrentAndLeavingRestores) {
  const Stream before = current_stream();
  const Stream outer = Stream::from_flags({});
  const Stream inner = Stream::from_flags({});
  {
    const StreamGuard with_outer(outer);
    EXPECT_EQ(current_stream(), outer);
    EXPECT_THROW(
        {
          const StreamGuard with_inner(inner);
          EXPECT_EQ(current_stream(), inner);
          const StreamGuard again(outer);  // re-entered
          EXPECT_EQ(current_stream(), outer);
          throw std::runtime_error("left by an exception");
        },
        std::runtime_error);
    EXPECT_EQ(current_stream(), outer);
  }
  EXPECT_EQ(current_stream(), before);
}

TEST_F(CupyStream, UseMakesCurrentForGood) {
  const Stream stream = Stream::from_flags({});
  stream.use();
  EXPECT_EQ(current_stream(), stream);
}

TEST_F(CupyStream, CallbackGetsStreamStatusAndArgument) {
  const Stream stream = Stream::from_flags({});
  int argument = 7;
  std::string seen;
  stream.add_callback(
      [&](const Stream& of, int status, void* data) {
        seen = of.to_string() + " " + std::to_string(status) + " " + std::to_string(*static_cast<int*>(data));
      },
      &argument);
  stream.synchronize();
  EXPECT_EQ(seen, stream.to_string() + " 0 7");
}

TEST_F(CupyStream, CallbackRunsAfterTheQueuedWork) {
  const Stream stream = Stream::from_flags({});
  note(stream, 1);
  stream.add_callback([this](const Stream&, int, void*) { ran.push_back(2); }, nullptr);
  note(stream, 3);
  EXPECT_THAT(ran, ElementsAre());
  stream.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
}

TEST_F(CupyStream, CallbackInCaptureIsRefused) {
  const Stream stream = Stream::from_flags({.non_blocking = true});
  stream.begin_capture();
  EXPECT_THROW(stream.add_callback([](const Stream&, int, void*) {}), NotSupported);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  EXPECT_EQ(stream.end_capture().node_count(), 0U);
}

TEST_F(CupyStream, HostFunctionRunsAfterTheQueuedWork) {
  const Stream stream = Stream::from_flags({});
  note(stream, 1);
  int argument = 2;
  stream.launch_host_func([this, &argument] { ran.push_back(argument); });
  note(stream, 3);
  stream.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
}

TEST_F(CupyStream, CaptureIsRelaxedByDefault) {
  const Stream stream = Stream::from_flags({.non_blocking = true});
  stream.begin_capture();
  // Only a relaxed capture lets its own thread make calls that may be unsafe in one.
  void* memory = allocate(std::size_t{64} << 20, Stream::create());
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  EXPECT_EQ(stream.end_capture().node_count(), 0U);
  deallocate(memory);
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::per_thread, CaptureMode::relaxed}) {
    stream.begin_capture(mode);
    note(stream, 1);
    EXPECT_EQ(stream.end_capture().node_count(), 1U);
  }
}

TEST_F(CupyStream, BeginAndEndOfACaptureArePaired) {
  const Stream stream = Stream::from_flags({.non_blocking = true});
  EXPECT_THROW(static_cast<void>(stream.end_capture()), Error);
  stream.begin_capture();
  EXPECT_THROW(stream.begin_capture(), Error);
  EXPECT_THROW(static_cast<void>(Stream::from_flags({}).end_capture()), Error);
}

// g = s1.end_capture(); g.launch(stream=s1); s1.synchronize()
// s2 = cp.cuda.Stream(); with s2: g.launch(); s2.synchronize()
TEST_F(CupyStream, TheGraphRunsOnAnyStream) {
  const Stream s1 = Stream::from_flags({.non_blocking = true});
  Graph g;
  {
    const StreamGuard with(s1);
    s1.begin_capture();
    note(s1, 1);
    note(s1, 2);
    g = s1.end_capture();
    g.launch(s1);
    s1.synchronize();
  }
  EXPECT_THAT(ran, ElementsAre(1, 2));
  const Stream s2 = Stream::from_flags({});
  {
    const StreamGuard with(s2);
    g.launch();
    EXPECT_FALSE(s2.query());
    s2.synchronize();
  }
  EXPECT_THAT(ran, ElementsAre(1, 2, 1, 2));
}

TEST_F(CupyStream, SynchronousTransfersAreRefusedDuringCapture) {
  const Stream stream = Stream::from_flags({});  // blocking: the transfer would wait for it
  const DeviceBuffer<int> data(4, Stream::create());
  int host[4] = {};
  stream.begin_capture(CaptureMode::global);
  EXPECT_THROW(copy(host, data.data(), sizeof host), DriverError);
  EXPECT_THROW(static_cast<void>(stream.end_capture()), Error);
}

TEST_F(CupyStream, IsCapturingTellsTheState) {
  const Stream stream = Stream::from_flags({.non_blocking = true});
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
  stream.begin_capture();
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  EXPECT_THROW(stream.synchronize(), Error);  // not allowed in a capture
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::invalidated);
  EXPECT_THROW(static_cast<void>(stream.end_capture()), Error);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::none);
}

TEST_F(CupyStream, IsCapturingOfTheNullStreamDuringACaptureIsTheDriversError) {
  const Stream stream = Stream::from_flags({});  // a blocking stream that captures makes the query illegal
  stream.begin_capture();
  EXPECT_THROW(static_cast<void>(Stream::null().is_capturing()), DriverError);
  try {
    static_cast<void>(stream.end_capture());
  } catch (const Error&) {  // whether the query has invalidated the capture is the driver's affair
  }
}

TEST_F(CupyStream, AnExternalStreamIsTheHandleItWraps) {
  const Stream owner = Stream::create();
  const Stream external = Stream::external(owner.native_handle(), 0);
  EXPECT_EQ(external, owner);
  EXPECT_EQ(external.id(), owner.id());
  note(owner, 1);
  note(external, 2);
  external.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_F(CupyStream, AnExternalStreamKeepsItsOwnerAlive) {
  auto torch_stream = std::make_shared<Stream>(Stream::create());
  const std::weak_ptr<Stream> watch = torch_stream;
  {
    const Stream cupy = Stream::external(torch_stream->native_handle(), 0, torch_stream);
    const Stream copy = cupy;
    torch_stream.reset();
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST_F(CupyStream, RecordMakesAPlainEvent) {
  const Stream stream = Stream::from_flags({});
  const Event first = stream.record_event(EventOptions::cupy());
  work(stream);
  const Event last = stream.record_event(EventOptions::cupy());
  last.synchronize();
  EXPECT_FLOAT_EQ(first.elapsed_time(last), 1.0F);
  Event mine;
  stream.record_event(mine);
  EXPECT_TRUE(mine.is_created());
}

TEST_F(CupyStream, SynchronizeReturnsWhenAllWorkIsDone) {
  const Stream stream = Stream::from_flags({});
  note(stream, 1);
  stream.synchronize();
  EXPECT_THAT(ran, ElementsAre(1));
}

TEST_F(CupyStream, DoneTellsWhetherAllWorkIsDone) {
  const Stream stream = Stream::from_flags({});
  EXPECT_TRUE(stream.done());
  work(stream);
  EXPECT_FALSE(stream.done());
  stream.synchronize();
  EXPECT_TRUE(stream.done());
}

TEST_F(CupyStream, FutureWorkIsDoneAfterTheEvent) {
  const Stream first = Stream::from_flags({.non_blocking = true});
  const Stream second = Stream::from_flags({.non_blocking = true});
  note(first, 1);
  second.wait_event(first.record_event());
  note(second, 2);
  second.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_F(CupyStream, ComparisonsAreATotalOrder) {
  const Stream a = Stream::from_flags({});
  const Stream same = Stream::external(a.native_handle(), 0);
  const Stream b = Stream::create({.device = 1});
  EXPECT_TRUE(a == same && a <= same && a >= same && !(a != same) && !(a < same) && !(a > same));
  EXPECT_EQ(a.hash(), same.hash());
  EXPECT_TRUE(a != b && a < b && a <= b && b > a && b >= a && !(a == b));
  EXPECT_TRUE(Stream::null() < a);
  // Default streams have one handle on all devices.
  const Stream here = default_stream(0);
  const Stream there = default_stream(1);
  EXPECT_TRUE(here != there && !(here == there) && here < there && !(there <= here));
}

}  // namespace
}  // namespace cistern
