// The demo's kernels are host code: its tests run on a simulated device, whatever the
// environment says, of a size that every machine has.

#include <gtest/gtest.h>

#include <cstdlib>

namespace {

class SimulatedDevice : public ::testing::Environment {
 public:
  void SetUp() override { setenv("CISTERN_DEVICE", "simulated:capacity=1GiB", 1); }
};

const ::testing::Environment* const kDevice = ::testing::AddGlobalTestEnvironment(new SimulatedDevice);

}  // namespace
