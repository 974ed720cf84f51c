// torch.Stream, and what torch.cuda.Stream has of it. Each page's example is one of the cases.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;

class TorchStream : public FrameworkDevice {};

// An n by n matrix in device memory.
DeviceBuffer<float> matrix(std::size_t n, const Stream& stream) { return DeviceBuffer<float>(n * n, stream); }

void fill(DeviceBuffer<float>& m, float value, const Stream& stream) {
  float* data = m.data();
  const std::size_t count = m.size();
  simulated::launch(stream, {}, {{data, count * sizeof(float)}}, std::chrono::microseconds(1),
                    [data, count, value] { std::fill_n(data, count, value); });
}

void multiply(const DeviceBuffer<float>& a, const DeviceBuffer<float>& b, DeviceBuffer<float>& c, std::size_t n,
              const Stream& stream) {
  const float *x = a.data(), *y = b.data();
  float* z = c.data();
  const std::size_t bytes = n * n * sizeof(float);
  simulated::launch(stream, {{x, bytes}, {y, bytes}}, {{z, bytes}}, std::chrono::microseconds(10), [x, y, z, n] {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        z[i * n + j] = 0;
        for (std::size_t k = 0; k < n; ++k) z[i * n + j] += x[i * n + k] * y[k * n + j];
      }
  });
}

TEST_F(TorchStream, RunsTasksInTheOrderTheyWereQueued) {
  const Stream stream = Stream::from_pool();
  for (int i = 0; i < 4; ++i) note(stream, i);
  EXPECT_THAT(ran, ElementsAre());
  stream.synchronize();
  EXPECT_THAT(ran, ElementsAre(0, 1, 2, 3));
}

TEST_F(TorchStream, IsMadeOnTheDeviceThatIsNamed) {
  EXPECT_EQ(Stream::from_pool({.device = "cuda"}).device(), Device(0));
  EXPECT_EQ(Stream::from_pool({.device = "cuda:1"}).device(), Device(1));
  EXPECT_EQ(Stream::create({.device = 1}).device(), Device(1));
  EXPECT_EQ(current_device(), Device(0));
}

TEST_F(TorchStream, TakesThePrioritiesOfPyTorchAndNoOther) {
  EXPECT_EQ(Stream::from_pool().priority(), 0);
  EXPECT_EQ(Priority::pytorch(), 0);
  EXPECT_EQ(Stream::from_pool({.priority = Priority::pytorch(-1)}).priority(), -1);
  EXPECT_EQ(Priority::pytorch(0), 0);
  EXPECT_THROW(static_cast<void>(Priority::pytorch(1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Priority::pytorch(-2)), InvalidArgument);
  EXPECT_LE(Stream::priority_range().greatest, -1);
  EXPECT_EQ(Stream::priority_range().least, 0);
}

// with torch.Stream(device='cuda') as s_cuda: c = torch.mm(a, b)
TEST_F(TorchStream, GuardMakesTheStreamCurrentAndRestores) {
  constexpr std::size_t n = 5;
  const Stream before = current_stream();
  const Stream s_cuda = Stream::create({.device = "cuda"});
  {
    const StreamGuard with(s_cuda);
    EXPECT_EQ(current_stream(), s_cuda);
    auto a = matrix(n, current_stream());
    auto b = matrix(n, current_stream());
    auto c = matrix(n, current_stream());
    fill(a, 2, current_stream());
    fill(b, 3, current_stream());
    multiply(a, b, c, n, current_stream());
    s_cuda.synchronize();
    EXPECT_EQ(c.data()[0], 30.0F);
  }
  EXPECT_EQ(current_stream(), before);
  try {
    const StreamGuard with(s_cuda);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(current_stream(), before);
}

// s_cuda.query() is True
TEST_F(TorchStream, QueryTellsWhetherAllSubmittedWorkIsDone) {
  const Stream s_cuda = Stream::create({.device = "cuda"});
  EXPECT_TRUE(s_cuda.query());
  work(s_cuda);
  EXPECT_FALSE(s_cuda.query());
  driver().run_until_idle();
  EXPECT_TRUE(s_cuda.query());
}

// e_cuda = s_cuda.record_event()
TEST_F(TorchStream, RecordEventMakesAnEventWhereNoneIsGiven) {
  const Stream s_cuda = Stream::create({.device = "cuda"});
  work(s_cuda);
  const Event e_cuda = s_cuda.record_event();
  work(s_cuda);
  EXPECT_FALSE(e_cuda.query());
  driver().step(s_cuda.native_handle());
  EXPECT_TRUE(e_cuda.query());
  EXPECT_FALSE(s_cuda.query());
  EXPECT_THROW(static_cast<void>(e_cuda.elapsed_time(e_cuda)), InvalidArgument);  // it has no timing
  Event mine;
  s_cuda.record_event(mine);
  EXPECT_TRUE(mine.is_created());
  EXPECT_FALSE(mine.query());
}

TEST_F(TorchStream, SynchronizeReturnsWhenAllWorkIsDone) {
  const Stream s_cuda = Stream::create({.device = "cuda"});
  note(s_cuda, 1);
  note(s_cuda, 2);
  s_cuda.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

// e_cuda = s1_cuda.record_event(); s2_cuda.wait_event(e_cuda)
TEST_F(TorchStream, FutureWorkWaitsForAnEvent) {
  const Stream s1_cuda = Stream::create({.device = "cuda"});
  const Stream s2_cuda = Stream::create({.device = "cuda"});
  note(s2_cuda, 0);
  note(s1_cuda, 1);
  const Event e_cuda = s1_cuda.record_event();
  s2_cuda.wait_event(e_cuda);
  note(s2_cuda, 2);
  EXPECT_THAT(ran, ElementsAre());
  driver().step(s2_cuda.native_handle());
  EXPECT_THAT(ran, ElementsAre(0));  // what was there before does not wait
  s2_cuda.synchronize();
  EXPECT_THAT(ran, ElementsAre(0, 1, 2));
}

// s2_cuda.wait_stream(s1_cuda)
TEST_F(TorchStream, FutureWorkWaitsForTheOtherStreamsWork) {
  const Stream s1_cuda = Stream::create({.device = "cuda"});
  const Stream s2_cuda = Stream::create({.device = "cuda"});
  note(s1_cuda, 1);
  s2_cuda.wait_stream(s1_cuda);
  note(s1_cuda, 3);  // submitted after the call: not waited for
  note(s2_cuda, 2);
  s2_cuda.synchronize();
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

}  // namespace
}  // namespace cistern
