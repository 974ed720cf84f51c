#pragma once

// The process's device for the frameworks' tests: two simulated devices under the race
// detector, which must have nothing to say of any example.

#include <cistern/cistern.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

namespace cistern {

class FrameworkDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=4GiB,races=report", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override {
    driver().clear_faults();
    driver().run_until_idle();
    for (int device = 1; device >= 0; --device) set_stream(default_stream(device));
    EXPECT_TRUE(driver().race_reports().empty());
  }

  static SimulatedDriver& driver() { return simulated::driver(); }
  // Work that takes a millisecond of virtual time, and does `function`.
  static void work(
      const Stream& stream, std::function<void()> function = [] {}) {
    simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), std::move(function));
  }
  // Work that notes that it ran.
  void note(const Stream& stream, int number) {
    work(stream, [this, number] { ran.push_back(number); });
  }

  std::vector<int> ran;
};

}  // namespace cistern
