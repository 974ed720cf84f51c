// Fills in stream order, on simulated devices.

#include <cistern/error.h>
#include <cistern/graph.h>
#include <cistern/memory.h>
#include <cistern/random.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "runtime/philox.h"
#include "runtime/process_driver.h"
#include "tests/runtime/device_memory.h"
#include "tests/runtime/process_device.h"

namespace cistern {
namespace {

constexpr std::uint64_t kSeed = 42;

class RandomFills : public ProcessDevice {
 protected:
  void SetUp() override {
    ProcessDevice::SetUp();
    manual_seed_all(kSeed);
  }
  static std::uint64_t offset(int device = 0) {
    std::uint64_t value = 0;
    std::memcpy(&value, get_rng_state(device).data() + 8, sizeof value);
    return value;
  }
  template <class Value>
  static std::vector<Value> read(const void* source, std::size_t count) {
    std::vector<Value> values(count);
    synchronize();
    copy(values.data(), source, count * sizeof(Value));
    return values;
  }
  static std::uint32_t* words_at(const DeviceMemory& memory) { return static_cast<std::uint32_t*>(memory.get()); }
  static float* floats_at(const DeviceMemory& memory) { return static_cast<float*>(memory.get()); }

  // Whether `values` are the words of the sequence from a position on.
  static void expect_words(const std::vector<std::uint32_t>& values, std::uint64_t position,
                           std::uint64_t seed = kSeed) {
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], philox_word(seed, position + i)) << i;
  }
};

TEST_F(RandomFills, TakeTheSequenceOnFromCallToCall) {
  const DeviceMemory memory(4000);
  fill_random_words(words_at(memory), 7);
  fill_random_words(words_at(memory) + 7, 993);
  EXPECT_EQ(offset(), 1000U);
  expect_words(read<std::uint32_t>(memory.get(), 1000), 0);
}

TEST_F(RandomFills, GoOnInMidStreamFromAStateThatWasSaved) {
  const DeviceMemory memory(4000);
  fill_uniform(floats_at(memory), 321);
  const RngState saved = get_rng_state();
  fill_uniform(floats_at(memory), 500);
  fill_normal(floats_at(memory) + 500, 401);
  const auto first = read<float>(memory.get(), 901);
  const RngState after = get_rng_state();
  manual_seed(1);
  set_rng_state(saved);
  fill_uniform(floats_at(memory), 100);
  fill_uniform(floats_at(memory) + 100, 400);
  fill_normal(floats_at(memory) + 500, 401);
  EXPECT_EQ(read<float>(memory.get(), 901), first);
  EXPECT_EQ(get_rng_state(), after);
}

TEST_F(RandomFills, OfNormalValuesTakeWholePairs) {
  const DeviceMemory memory(4000);
  fill_random_words(words_at(memory), 3);
  fill_normal(floats_at(memory), 5);
  EXPECT_EQ(offset(), 10U);  // 4 to 9
  const auto values = read<float>(memory.get(), 5);
  RngState state(kRngStateBytes);
  state[0] = kSeed;
  state[8] = 4;
  set_rng_state(state);
  fill_normal(floats_at(memory), 6);
  const auto longer = read<float>(memory.get(), 6);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), longer.begin()));
}

TEST_F(RandomFills, OfDevicesAreIndependent) {
  const DeviceMemory here(400);
  const DeviceMemory there(400, 1);
  fill_random_words(words_at(here), 100, default_stream(0));
  EXPECT_EQ(offset(1), 0U);
  fill_random_words(words_at(there), 100, default_stream(1));
  EXPECT_EQ(offset(0), 100U);
  EXPECT_EQ(offset(1), 100U);
  synchronize(1);
  EXPECT_EQ(read<std::uint32_t>(here.get(), 100), read<std::uint32_t>(there.get(), 100));
}

TEST_F(RandomFills, RunInStreamOrderAndTakeTheirPlaceWhenTheyAreQueued) {
  const DeviceMemory memory(400);
  const Stream stream = Stream::create();
  const Stream other = Stream::create();
  fill_async(memory.get(), 0xab, 400, stream);
  occupy(stream);
  fill_random_words(words_at(memory), 100, stream);
  const DeviceMemory second(400);
  fill_random_words(words_at(second), 100, other);
  EXPECT_FALSE(stream.query());
  other.synchronize();
  std::vector<std::uint32_t> now(100);
  std::memcpy(now.data(), memory.get(), 400);
  EXPECT_NE(now[99], philox_word(kSeed, 99));  // the first still waits behind what keeps its stream
  stream.synchronize();
  expect_words(read<std::uint32_t>(memory.get(), 100), 0);
  expect_words(read<std::uint32_t>(second.get(), 100), 100);
}

TEST_F(RandomFills, ThatAreCapturedWriteTheSameAtEachLaunch) {
  const DeviceMemory memory(400);
  const Stream stream = Stream::create();
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::per_thread, CaptureMode::relaxed}) {
    manual_seed(kSeed);
    stream.begin_capture(mode);
    fill_random_words(words_at(memory), 100, stream);
    Graph graph = stream.end_capture();
    EXPECT_EQ(offset(), 100U);
    for (int launch = 0; launch < 3; ++launch) {
      fill_async(memory.get(), 0, 400, stream);
      graph.launch(stream);
      stream.synchronize();
      expect_words(read<std::uint32_t>(memory.get(), 100), 0);
    }
    fill_random_words(words_at(memory), 100, stream);
    stream.synchronize();
    expect_words(read<std::uint32_t>(memory.get(), 100), 100);
  }
}

TEST_F(RandomFills, ThatAreRefusedTakeNothing) {
  const DeviceMemory memory(400);
  fill_random_words(words_at(memory), 10);
  const RngState before = get_rng_state();
  EXPECT_THROW(fill_random_words(nullptr, 1), InvalidArgument);
  EXPECT_THROW(fill_random_words(reinterpret_cast<std::uint32_t*>(memory.at(2)), 1), InvalidArgument);
  EXPECT_THROW(fill_random_words(words_at(memory), ~std::size_t{0}), InvalidArgument);
  EXPECT_THROW(fill_uniform(floats_at(memory), std::size_t{1} << 40), DriverError);  // beyond the memory
  float host = 0;
  EXPECT_THROW(fill_uniform(&host, 1), DriverError);
  EXPECT_THROW(fill_normal(floats_at(memory), 1, 0, -1), InvalidArgument);
  EXPECT_THROW(fill_normal(floats_at(memory), 1, std::numeric_limits<float>::infinity()), InvalidArgument);
  EXPECT_THROW(fill_normal(floats_at(memory), 1, 0, std::numeric_limits<float>::quiet_NaN()), InvalidArgument);
  fill_uniform(nullptr, 0);
  EXPECT_EQ(get_rng_state(), before);
}

TEST_F(RandomFills, ThatTheDriverRefusesSayWhichAndWhy) {
  const DeviceMemory memory(400, 1);
  try {
    fill_uniform(floats_at(memory), 100, default_stream(0));  // another device's, without peer access
    FAIL();
  } catch (const DriverError& error) {
    EXPECT_EQ(error.code(), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(error.call(), "fill_uniform");
  }
}

TEST_F(RandomFills, OfSeveralThreadsShareTheSequence) {
  constexpr std::size_t each = 500;
  constexpr int threads = 4;
  const DeviceMemory memory(each * threads * 4);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      const Stream stream = Stream::create();
      for (std::size_t k = 0; k < each; ++k)
        fill_random_words(words_at(memory) + static_cast<std::size_t>(i) * each + k, 1, stream);
      stream.synchronize();
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(offset(), each * threads);
  auto values = read<std::uint32_t>(memory.get(), each * threads);
  std::vector<std::uint32_t> expected(values.size());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = philox_word(kSeed, i);
  std::sort(values.begin(), values.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(values, expected);
}

TEST_F(RandomFills, InsideAHostFunctionAreRefused) {
  const DeviceMemory memory(400);
  int code = 0;
  current_stream().launch_host_func([&] {
    try {
      fill_uniform(floats_at(memory), 1, default_stream(0));
    } catch (const DriverError& error) {
      code = error.code();
    }
  });
  synchronize();
  EXPECT_EQ(code, CUDA_ERROR_NOT_PERMITTED);
}

TEST(RandomFillsOfAccounts, WriteNothing) {
  SimulatedDriver driver({.backing = Backing::none});
  const DriverApi& api = driver.api();
  ASSERT_EQ(api.init(0), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(api.primary_ctx_retain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(api.ctx_set_current(context), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(api.mem_alloc(&memory, 4096), CUDA_SUCCESS);
  EXPECT_EQ(api.fill_random({.destination = memory, .count = 1024}, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(api.fill_random({.destination = memory + 1, .count = 1}, nullptr), CUDA_ERROR_INVALID_VALUE);
  driver.shut_down();
  EXPECT_EQ(api.fill_random({.destination = memory, .count = 1}, nullptr), CUDA_ERROR_DEINITIALIZED);
}

}  // namespace
}  // namespace cistern
