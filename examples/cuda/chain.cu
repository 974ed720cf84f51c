// A CUDA program on cistern's memory: a chain of kernels over two streams, Thrust, and a graph.
//   nvcc -std=c++17 chain.cu -lcistern -o chain && ./chain
// Without a device it says so and ends with 77: there are no kernels on the simulated one.

#include <cistern/cistern.h>
#include <cistern/integrations/thrust.h>
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

constexpr int kCount = 1 << 20;
constexpr int kThreads = 256;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

__global__ void add(float* values, float number, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] += number;
}
__global__ void scale(const float* from, float* to, float factor, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = from[i] * factor;
}

// (0 + 1) * 3, each step in memory of its own, which is freed as soon as the next step is queued.
float chain(const cistern::Stream& first, const cistern::Stream& second) {
  const dim3 blocks((kCount + kThreads - 1) / kThreads);
  cistern::DeviceBuffer<float> result(kCount, second);
  {
    cistern::DeviceBuffer<float> start(kCount, first);
    cistern::fill_async(start.data(), 0, start.size_bytes(), first);
    add<<<blocks, kThreads, 0, first.native_handle()>>>(start.data(), 1.0F, kCount);
    second.wait_stream(first);
    scale<<<blocks, kThreads, 0, second.native_handle()>>>(start.data(), result.data(), 3.0F, kCount);
    start.record_stream(second);
  }
  check(cudaGetLastError(), "the chain");
  float last = 0;
  cistern::copy_async(&last, result.data() + kCount - 1, sizeof last, second);
  second.synchronize();
  return last;
}

// Launched three times: what is captured works on the same memory each time.
float launch_graph(const cistern::Stream& stream) {
  cistern::DeviceBuffer<float> values(kCount, stream);
  cistern::fill_async(values.data(), 0, values.size_bytes(), stream);
  cistern::CaptureGuard capture(stream);
  add<<<(kCount + kThreads - 1) / kThreads, kThreads, 0, stream.native_handle()>>>(values.data(), 2.0F, kCount);
  const cistern::Graph graph = capture.end();
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  float last = 0;
  cistern::copy_async(&last, values.data() + kCount - 1, sizeof last, stream);
  stream.synchronize();
  return last;
}

int sort_by_thrust(const cistern::Stream& stream) {
  thrust::device_vector<int, cistern::ThrustAllocator<int>> keys(kCount, cistern::ThrustAllocator<int>(stream));
  check(cudaDeviceSynchronize(), "the vector's beginning");  // it was filled on Thrust's own stream
  cistern::ThrustAllocator<char> scratch(stream);
  const auto policy = thrust::cuda::par(scratch).on(stream.native_handle());
  thrust::sequence(policy, keys.rbegin(), keys.rend());
  thrust::sort(policy, keys.begin(), keys.end());
  return keys[12345];
}

}  // namespace

int main() try {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device: nothing was run");
    return 77;
  }
  const cistern::Stream first = cistern::Stream::create(), second = cistern::Stream::create();
  const float chained = chain(first, second), launched = launch_graph(first);
  const int sorted = sort_by_thrust(second);
  std::printf("%g %g %d\n%s\n", static_cast<double>(chained), static_cast<double>(launched), sorted,
              cistern::memory_report().c_str());
  return chained == 3 && launched == 6 && sorted == 12345 && cistern::memory_allocated() == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
