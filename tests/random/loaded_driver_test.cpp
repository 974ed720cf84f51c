// Fills through our libcuda.so.1, whose devices run no kernels of cuRAND: it makes the values itself.

#include <cistern/cistern.h>
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "runtime/philox.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

class LoadedDriver : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "cuda", 1);
    setenv("CISTERN_LIBCUDA", CISTERN_SIMULATED_LIBCUDA, 1);
    setenv("CISTERN_SIMULATED", "capacity=1GiB", 1);
    setenv("CISTERN_LIBCURAND", "/nowhere/libcurand.so.10", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
};

TEST_F(LoadedDriver, FillsWithTheSameValuesWithoutCurand) {
  constexpr std::size_t count = 1000;
  manual_seed_all(42);
  DeviceBuffer<std::uint32_t> buffer(count);
  fill_random_words(buffer.data(), 10);
  fill_random_words(buffer.data(), count);
  std::vector<std::uint32_t> values(count);
  copy(values.data(), buffer.data(), count * 4);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], philox_word(42, 10 + i));
  EXPECT_THROW(fill_uniform(nullptr, 1), InvalidArgument);
  EXPECT_THROW(fill_random_words(buffer.data(), std::size_t{1} << 40), DriverError);
  EXPECT_EQ(get_rng_state()[8], 1010 % 256);
}

TEST_F(LoadedDriver, RefusesAKindThatIsNone) {
  initialize();
  ASSERT_NE(process_driver().controls, nullptr);
  EXPECT_EQ(process_driver().controls->fill_random(nullptr, nullptr, 1, 3, 0, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(process_driver().controls->fill_random(nullptr, nullptr, 1, -1, 0, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LoadedDriver, HasNoCublasHandle) { EXPECT_THROW(static_cast<void>(current_blas_handle()), NotSupported); }

}  // namespace
}  // namespace cistern
