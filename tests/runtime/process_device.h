#pragma once

// The process's device, simulated, for tests of the free functions.

#include <cistern/device.h>
#include <cistern/simulated.h>
#include <cistern/stream.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace cistern {

inline constexpr int kDevices = 2;

// Two devices of 4 GiB. Each case starts and ends on device 0, default streams, idle.
class ProcessDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "simulated:devices=2,capacity=4GiB", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void SetUp() override { become_idle(); }
  void TearDown() override { become_idle(); }

  static SimulatedDriver& driver() { return simulated::driver(); }
  static void occupy(const Stream& stream) {
    simulated::launch(stream, {}, {}, std::chrono::milliseconds(1), [] {});
  }

 private:
  static void become_idle() {
    driver().clear_faults();
    driver().run_until_idle();
    for (int device = kDevices - 1; device >= 0; --device) set_stream(default_stream(device));
  }
};

}  // namespace cistern
