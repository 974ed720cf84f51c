// The essentials of a training loop: parameters that stay, activations that come and go with each step, batches that
// another stream brings ahead of time, tags and a scope that tell whose memory it was.
//   CISTERN_DEVICE=simulated:races=report cistern_training     (or cuda)
// The arithmetic runs in host functions, in stream order: in your program it would be kernels on the same streams.

#include <cistern/cistern.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <exception>

namespace {
using cistern::DeviceBuffer, cistern::PinnedMemory, cistern::Stream, cistern::TagScope;
constexpr std::size_t kWidth = 64, kBatch = 256;
constexpr int kSteps = 60;

float* floats(const PinnedMemory& memory) { return static_cast<float*>(memory.data()); }

// What the host functions work on: a copy of the device's memory in page-locked memory, there and back in order.
struct Staging {
  PinnedMemory weights{kWidth * sizeof(float)};
  PinnedMemory outputs{kBatch * sizeof(float)};
  PinnedMemory inputs{kBatch * kWidth * sizeof(float)};
  float loss = 0;
};

void make_batch(float* inputs, int step) {
  for (std::size_t i = 0; i < kBatch * kWidth; ++i)
    inputs[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(step) * 131) * 0.37F);
}
float target(const float* input) { return input[0] * 2 - input[1] + input[2] * 0.5F; }

void forward(Staging& at) {
  for (std::size_t row = 0; row < kBatch; ++row) {
    float sum = 0;
    for (std::size_t i = 0; i < kWidth; ++i) sum += floats(at.inputs)[row * kWidth + i] * floats(at.weights)[i];
    floats(at.outputs)[row] = sum;
  }
}
void backward(Staging& at) {
  std::array<float, kWidth> gradient{};
  at.loss = 0;
  for (std::size_t row = 0; row < kBatch; ++row) {
    const float* const input = floats(at.inputs) + row * kWidth;
    const float error = floats(at.outputs)[row] - target(input);
    at.loss += error * error / kBatch;
    for (std::size_t i = 0; i < kWidth; ++i) gradient[i] += error * input[i] / kBatch;
  }
  for (std::size_t i = 0; i < kWidth; ++i) floats(at.weights)[i] -= 0.1F * gradient[i];
}

// One step: its activations are freed when it is queued, long before the device is done with them.
void train(const DeviceBuffer<float>& inputs, DeviceBuffer<float>& weights, Staging& at, const Stream& compute) {
  const TagScope tag("activations");
  DeviceBuffer<float> outputs(kBatch, compute);
  cistern::copy_async(at.inputs.data(), inputs.data(), inputs.size_bytes(), compute);
  cistern::copy_async(at.weights.data(), weights.data(), weights.size_bytes(), compute);
  compute.launch_host_func([&at] { forward(at); });
  cistern::copy_async(outputs.data(), at.outputs.data(), outputs.size_bytes(), compute);
  cistern::copy_async(at.outputs.data(), outputs.data(), outputs.size_bytes(), compute);
  compute.launch_host_func([&at] { backward(at); });
  cistern::copy_async(weights.data(), at.weights.data(), weights.size_bytes(), compute);
}

}  // namespace

int main() try {
  const Stream compute = Stream::create(), copies = Stream::create();
  Staging staging;
  PinnedMemory batch(kBatch * kWidth * sizeof(float));
  const cistern::PeakScope scope;
  float first_loss = 0;
  {
    const TagScope tag("parameters");
    DeviceBuffer<float> weights(kWidth, compute);
    cistern::fill_async(weights.data(), 0, weights.size_bytes(), compute);
    for (int step = 0; step < kSteps; ++step) {
      const TagScope batches("batches");
      make_batch(floats(batch), step);
      DeviceBuffer<float> inputs(kBatch * kWidth, copies);
      cistern::copy_async(inputs.data(), batch.data(), inputs.size_bytes(), copies);
      compute.wait_stream(copies);
      inputs.record_stream(compute);  // freed at the end of the step, reused when `compute` is done with it
      train(inputs, weights, staging, compute);
      copies.synchronize();   // `batch` is written again
      compute.synchronize();  // to read the loss
      if (step == 0) first_loss = staging.loss;
    }
  }
  std::printf("loss %.4f -> %.4f\n", static_cast<double>(first_loss), static_cast<double>(staging.loss));
  for (const cistern::TagStats& tag : cistern::tag_stats())
    std::printf("%-12s %8lld bytes at most\n", tag.tag.c_str(), static_cast<long long>(tag.allocated_bytes.peak));
  std::printf("%lld segments were asked of the driver in %d steps\n",
              static_cast<long long>(scope.stats().num_device_alloc), kSteps);
  return staging.loss < first_loss / 20 && cistern::memory_allocated() == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
