// Collectives of several threads at once, on devices that run by themselves.

#include <thread>

#include "tests/comm/comm_case.h"

namespace cistern::comm {
namespace {

TEST(CommThreads, WorkAtTheSameTime) {
  setenv("CISTERN_DEVICE", "simulated:devices=3,capacity=1GiB,drive=free,races=report", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&right, t] {
      const Stream streams[] = {Stream::create({.device = 0}), Stream::create({.device = 1}),
                                Stream::create({.device = 2})};
      for (int device = 2; device >= 0; --device) set_stream(streams[device]);
      for (int i = 0; i < 10; ++i) {
        const std::vector<float> values = counted(60, static_cast<int>(t) * 100 + i);
        const Given given(values, {6, 10}, {1, 6}, i % 3);
        const std::vector<Tensor> copies = broadcast(given, {0, 1, 2});
        const Tensor sum = reduce_add({copies.begin(), copies.end()}, 1);
        const std::vector<Tensor> parts =
            scatter(sum, {0, 1, 2}, std::nullopt, 1, {streams[0], streams[1], streams[2]});
        const Tensor joined = gather({parts.begin(), parts.end()}, 1, "cpu");
        const std::vector<float> found = values_of<float>(joined);
        bool is_right = true;
        for (std::size_t k = 0; k < values.size(); ++k) is_right = is_right && found[k] == 3 * values[k];
        right[t] += is_right ? 1 : 0;
      }
      for (int device = 2; device >= 0; --device) set_stream(default_stream(device));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 10));
  simulated::driver().run_until_idle();
  EXPECT_TRUE(simulated::driver().race_reports().empty());
  for (int device = 0; device < 3; ++device) EXPECT_EQ(memory_allocated(device), 0U);
}

}  // namespace
}  // namespace cistern::comm
