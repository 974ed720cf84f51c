#pragma once

// The process's device for the frameworks' tests: two simulated devices, or as many as
// CISTERN_TEST_DEVICES says, under the race detector, which must have nothing to say of any example.

#include <cistern/cistern.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace cistern {

class FrameworkDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* const count = std::getenv("CISTERN_TEST_DEVICES");
    const std::string devices = count == nullptr ? "2" : count;
    setenv("CISTERN_DEVICE", ("simulated:devices=" + devices + ",capacity=4GiB,races=report").c_str(), 1);
    setenv("CISTERN_ALLOC_CONF", "policy:classic", 1);  // whose figures the pages have
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override {
    driver().clear_faults();
    driver().run_until_idle();
    for (int device = device_count() - 1; device >= 0; --device) set_stream(default_stream(device));
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
