// mindspore.hal.Stream; the cases named after an example compute what its page prints.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class MindSporeStream : public FrameworkDevice {
 protected:
  using Tensor = DeviceBuffer<float>;

  static Tensor constant(std::size_t count, float value) {
    Tensor tensor(count, current_stream());
    float* data = tensor.data();
    run({}, tensor, [data, count, value] { std::fill_n(data, count, value); });
    return tensor;
  }
  // Element by element, on the current stream.
  static Tensor combine(const Tensor& a, const Tensor& b, float (*function)(float, float)) {
    Tensor result(a.size(), current_stream());
    const float *x = a.data(), *y = b.data();
    float* z = result.data();
    const std::size_t count = a.size();
    run({range(a), range(b)}, result, [=] { std::transform(x, x + count, y, z, function); });
    return result;
  }
  // (m, k) times (k, n).
  static Tensor matmul(const Tensor& a, const Tensor& b, std::size_t m, std::size_t k, std::size_t n) {
    Tensor result(m * n, current_stream());
    const float *x = a.data(), *y = b.data();
    float* z = result.data();
    run({range(a), range(b)}, result, [=] {
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          z[i * n + j] = 0;
          for (std::size_t l = 0; l < k; ++l) z[i * n + j] += x[i * k + l] * y[l * n + j];
        }
    });
    return result;
  }
  static std::vector<float> values(const Tensor& tensor) {
    simulated::host_access({range(tensor)}, {});
    return {tensor.data(), tensor.data() + tensor.size()};
  }
  static MemoryRange range(const Tensor& tensor) { return {tensor.data(), tensor.size() * sizeof(float)}; }

 private:
  static void run(std::vector<MemoryRange> reads, const Tensor& result, std::function<void()> function) {
    simulated::launch(current_stream(), std::move(reads), {range(result)}, std::chrono::microseconds(1),
                      std::move(function));
  }
};

TEST_F(MindSporeStream, StreamsAreIndependent) {
  const Stream s1 = Stream::create();
  const Stream s2 = Stream::create();
  note(s1, 1);
  note(s2, 2);
  s2.synchronize();
  EXPECT_THAT(ran, ElementsAre(2));
  EXPECT_FALSE(s1.query());
}

TEST_F(MindSporeStream, TakesThePrioritiesOfMindSpore) {
  EXPECT_EQ(Priority::mindspore(), 0);
  EXPECT_EQ(Stream::create({.priority = Priority::mindspore(-1)}).priority(), -1);
  EXPECT_LT(Priority::mindspore(-2).value(), Priority::mindspore(-1).value());
}

// with StreamCtx(s1): c = matmul(a, b); s1.synchronize(); assert s1.query()
TEST_F(MindSporeStream, TheExampleOfQueryAndSynchronize) {
  const Tensor a = constant(16 * 32, 1);
  const Tensor b = constant(32 * 64, 1);
  synchronize();  // the page's tensors come from the host
  const Stream s1 = Stream::create();
  const StreamGuard with(s1);
  const Tensor c = matmul(a, b, 16, 32, 64);
  s1.synchronize();
  EXPECT_TRUE(s1.query());
  EXPECT_THAT(values(c), Each(32.0F));
  a.record_stream(s1);
  b.record_stream(s1);
}

// event = s1.record_event() between two operations; current_stream().wait_event(event); e = c + 3
TEST_F(MindSporeStream, TheExampleOfRecordEvent) {
  const Tensor a = constant(9, 1);
  const Tensor b = constant(9, 1);
  const Tensor three = constant(9, 3);
  synchronize();
  const Stream s1 = Stream::create();
  Tensor c;
  Tensor d;
  Event event;
  {
    const StreamGuard with(s1);
    c = combine(a, b, [](float x, float y) { return x + y; });
    s1.record_event(event);
    d = combine(a, b, [](float x, float y) { return x * y; });
  }
  const Stream cur_stream = current_stream();
  cur_stream.wait_event(event);
  const Tensor e = combine(c, three, [](float x, float y) { return x + y; });
  cur_stream.synchronize();
  EXPECT_THAT(values(e), Each(5.0F));
  s1.synchronize();
  c.record_stream(cur_stream);
}

// with StreamCtx(s1): c = matmul(a, b); with StreamCtx(s2): s2.wait_stream(s1); d = matmul(c, b)
TEST_F(MindSporeStream, TheExampleOfWaitStream) {
  const Stream s1 = Stream::create();
  const Stream s2 = Stream::create();
  const Tensor a = constant(2, 1);
  const Tensor b = constant(4, 1);
  synchronize();
  Tensor c;
  Tensor d;
  {
    const StreamGuard with(s1);
    c = matmul(a, b, 1, 2, 2);
  }
  {
    const StreamGuard with(s2);
    s2.wait_stream(s1);
    d = matmul(c, b, 1, 2, 2);
  }
  synchronize();
  EXPECT_THAT(values(d), ElementsAre(4, 4));
}

}  // namespace
}  // namespace cistern
