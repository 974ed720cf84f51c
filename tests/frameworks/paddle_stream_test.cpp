// paddle.device.Stream; each case is an example of its page.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;

class PaddleStream : public FrameworkDevice {};

// s1 = Stream(); s2 = Stream('custom_cpu'); s3 = Stream('custom_cpu:0'); s4 = Stream(CustomPlace('custom_cpu', 0))
TEST_F(PaddleStream, TakesADeviceByIndexOrText) {
  set_device("cuda:1");
  EXPECT_EQ(Stream::create().device(), Device(1));
  EXPECT_EQ(Stream::create({.device = "cuda"}).device(), Device(1));
  EXPECT_EQ(Stream::create({.device = "cuda:0"}).device(), Device(0));
  EXPECT_EQ(Stream::create({.device = 0}).device(), Device(0));
  EXPECT_EQ(Stream::create({.device = "simulated:1"}).device(), Device(1));
  EXPECT_THROW(static_cast<void>(Stream::create({.device = "cuda:7"})), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Device("gpu:x")), InvalidArgument);
}

TEST_F(PaddleStream, TakesThePrioritiesOfPaddleAndNoOther) {
  EXPECT_EQ(Stream::create({.priority = Priority::paddle()}).priority(), 0);
  EXPECT_EQ(Stream::create({.priority = Priority::paddle(2)}).priority(), 0);
  EXPECT_LT(Stream::create({.priority = Priority::paddle(1)}).priority(), 0);
  EXPECT_THROW(static_cast<void>(Priority::paddle(0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Priority::paddle(3)), InvalidArgument);
}

TEST_F(PaddleStream, BlockingIsOffByDefault) {
  EXPECT_TRUE(Stream::create().is_non_blocking());
  EXPECT_FALSE(Stream::create({.non_blocking = false}).is_non_blocking());
}

// e1 = s.record_event(); e2 = paddle.device.Event(); s.record_event(e2)
TEST_F(PaddleStream, RecordEventTakesAnEventOrMakesOne) {
  const Stream s = Stream::create();
  work(s);
  const Event e1 = s.record_event();
  Event e2;
  s.record_event(e2);
  EXPECT_FALSE(e1.query() || e2.query());
  s.synchronize();
  EXPECT_TRUE(e1.query() && e2.query());
}

// e.record(s1); s2.wait_event(e)
TEST_F(PaddleStream, LaterWorkWaitsForTheEvent) {
  const Stream s1 = Stream::create();
  const Stream s2 = Stream::create();
  Event e;
  note(s1, 1);
  e.record(s1);
  s2.wait_event(e);
  note(s2, 2);
  s2.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

// s1.wait_stream(s2)
TEST_F(PaddleStream, LaterWorkWaitsForTheStream) {
  const Stream s1 = Stream::create();
  const Stream s2 = Stream::create();
  note(s2, 2);
  s1.wait_stream(s2);
  note(s1, 1);
  s1.synchronize();
  EXPECT_THAT(ran, ElementsAre(2, 1));
}

// s.query(); s.synchronize()
TEST_F(PaddleStream, QueryAndSynchronize) {
  const Stream s = Stream::create();
  note(s, 1);
  EXPECT_FALSE(s.query());
  s.synchronize();
  EXPECT_TRUE(s.query());
  EXPECT_THAT(ran, ElementsAre(1));
}

}  // namespace
}  // namespace cistern
