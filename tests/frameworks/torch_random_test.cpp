// torch.cuda: random number generator.

#include <cistern/error.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/frameworks/framework_device.h"

namespace cistern {
namespace {

constexpr std::size_t kCount = 1000;

class TorchCudaRandom : public FrameworkDevice {
 protected:
  // What the device gives next.
  static std::vector<float> draw(Device device = {}) {
    const DeviceGuard guard(device);
    DeviceBuffer<float> buffer(kCount);
    fill_uniform(buffer.data(), kCount);
    std::vector<float> values(kCount);
    copy_async(values.data(), buffer.data(), kCount * sizeof(float));
    current_stream().synchronize();
    return values;
  }
};

TEST_F(TorchCudaRandom, GettingAStateInitialises) {
  EXPECT_FALSE(is_initialized());
  static_cast<void>(get_rng_state());
  EXPECT_TRUE(is_initialized());
}

TEST_F(TorchCudaRandom, StatesAreOfTheDeviceThatIsNamed) {
  manual_seed_all(1);
  static_cast<void>(draw(1));
  EXPECT_EQ(get_rng_state(), get_rng_state(0));
  EXPECT_EQ(get_rng_state("cuda"), get_rng_state(0));
  EXPECT_NE(get_rng_state("cuda:1"), get_rng_state(0));
  set_rng_state(get_rng_state(1));
  EXPECT_EQ(get_rng_state(0), get_rng_state(1));
  manual_seed(5);
  set_rng_state(get_rng_state(0), 1);
  set_device(1);
  EXPECT_EQ(initial_seed(), 5U);
  manual_seed_all(1);
  static_cast<void>(draw(0));
  EXPECT_NE(get_rng_state(0), get_rng_state(1));
  EXPECT_EQ(get_rng_state(), get_rng_state(1));
  const RngState state = get_rng_state(1);
  set_rng_state(get_rng_state(0));
  EXPECT_NE(get_rng_state(1), state);
  EXPECT_EQ(get_rng_state(1), get_rng_state(0));
}

TEST_F(TorchCudaRandom, SeedsAreOfTheCurrentDevice) {
  manual_seed_all(11);
  const RngState first = get_rng_state(0);
  set_device(1);
  manual_seed(12);
  EXPECT_EQ(initial_seed(), 12U);
  EXPECT_EQ(get_rng_state(0), first);
  seed();
  EXPECT_NE(initial_seed(), 12U);
  EXPECT_EQ(get_rng_state(0), first);
}

TEST_F(TorchCudaRandom, AStateThatIsSetIsGoneOnFrom) {
  manual_seed(3);
  static_cast<void>(draw());
  const RngState state = get_rng_state();
  const std::vector<float> next = draw();
  EXPECT_NE(draw(), next);
  set_rng_state(state);
  EXPECT_EQ(draw(), next);
}

TEST_F(TorchCudaRandom, StatesOfAllDevicesAreSavedAndRestored) {
  seed_all();
  static_cast<void>(draw(1));
  const std::vector<RngState> states = get_rng_state_all();
  ASSERT_EQ(states.size(), static_cast<std::size_t>(device_count()));
  const std::vector<float> here = draw(0);
  const std::vector<float> there = draw(1);
  set_rng_state_all(states);
  EXPECT_EQ(draw(0), here);
  EXPECT_EQ(draw(1), there);
}

TEST_F(TorchCudaRandom, ASeedGivesTheSameNumbersAgain) {
  manual_seed(11);
  const std::vector<float> first = draw();
  manual_seed(12);
  EXPECT_NE(draw(), first);
  manual_seed(11);
  EXPECT_EQ(draw(), first);
}

TEST_F(TorchCudaRandom, AManualSeedIsInsufficientForSeveralDevices) {
  manual_seed_all(1);
  manual_seed(11);
  EXPECT_NE(draw(0), draw(1));
}

TEST_F(TorchCudaRandom, AManualSeedOfAllIsEnough) {
  manual_seed_all(11);
  EXPECT_EQ(draw(0), draw(1));
}

TEST_F(TorchCudaRandom, ARandomSeedIsOfTheCurrentDevice) {
  manual_seed_all(11);
  const RngState other = get_rng_state(1);
  seed();
  EXPECT_NE(initial_seed(), 11U);
  EXPECT_EQ(get_rng_state(1), other);
}

TEST_F(TorchCudaRandom, ARandomSeedOfAllIsOneSeed) {
  manual_seed_all(11);
  seed_all();
  EXPECT_NE(initial_seed(), 11U);
  EXPECT_EQ(draw(0), draw(1));
}

// In a process without a device, which ends here.
[[noreturn]] void seed_without_a_device() {
  setenv("CISTERN_DEVICE", "cuda", 1);
  setenv("CISTERN_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  manual_seed(1);
  manual_seed_all(2);
  seed();
  seed_all();
  if (is_initialized() || is_available()) std::_Exit(1);
  try {
    static_cast<void>(get_rng_state());
  } catch (const NotSupported&) {
    std::_Exit(0);
  }
  std::_Exit(2);
}

TEST(TorchCudaRandomDeathTest, SeedsWithoutADeviceAreIgnored) {
  EXPECT_EXIT(seed_without_a_device(), ::testing::ExitedWithCode(0), "^$");
}

TEST_F(TorchCudaRandom, SeedsBeforeTheFirstUseAreKept) {
  manual_seed_all(7);
  manual_seed(8);
  EXPECT_FALSE(is_initialized());
  EXPECT_EQ(initial_seed(), 8U);
  set_device(1);
  EXPECT_EQ(initial_seed(), 7U);
}

}  // namespace
}  // namespace cistern
