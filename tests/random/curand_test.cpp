// cuRAND: how it is called, through a library that looks like it; and what it gives, where it is there.

#include <cistern/cistern.h>
#include <curand.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/driver_api.h"
#include "runtime/random_values.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> calls() {
  void* library = dlopen(CISTERN_FAKE_LIBCURAND, RTLD_NOW | RTLD_LOCAL);
  std::istringstream lines(reinterpret_cast<const char* (*)()>(dlsym(library, "cistern_fake_curand_calls"))());
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  dlclose(library);
  return all;
}

// A process of its own each, on a driver that is none of ours to look at.
class Curand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CISTERN_DEVICE", "cuda", 1);
    setenv("CISTERN_LIBCUDA", CISTERN_FAKE_LIBCUDA, 1);
    setenv("CISTERN_LIBCURAND", CISTERN_FAKE_LIBCURAND, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void SetUp() override {
    unsetenv("CISTERN_FAKE_CURAND_FAILS");
    manual_seed_all(42);
    static_cast<void>(calls());
  }
};

TEST_F(Curand, IsToldOfSeedOffsetAndStream) {
  auto* memory = static_cast<float*>(allocate(4000));
  const Stream stream = Stream::create();
  const std::string handle = std::to_string(reinterpret_cast<std::uintptr_t>(stream.native_handle()));
  fill_uniform(memory, 5, stream);
  fill_random_words(reinterpret_cast<std::uint32_t*>(memory) + 5, 10, stream);
  EXPECT_THAT(calls(), ElementsAre("curandCreateGenerator 161", "curandSetGeneratorOrdering 103", "curandSetStream",
                                   "curandSetPseudoRandomGeneratorSeed", "curandSetGeneratorOffset",
                                   "curandGenerateUniform 42 0 5 " + handle, "curandSetStream",
                                   "curandSetPseudoRandomGeneratorSeed", "curandSetGeneratorOffset",
                                   "curandGenerate 42 5 10 " + handle));
  fill_normal(memory, 3, 100, 2, stream);
  EXPECT_EQ(calls().back(), "curandGenerateNormal 42 16 3 " + handle);
  std::vector<float> normal(3);
  copy(normal.data(), memory, 12);
  EXPECT_THAT(normal, ElementsAre(132, 134, 136));
  EXPECT_EQ(get_rng_state()[8], 20);
  deallocate(memory);
}

TEST_F(Curand, HasAGeneratorForEachDevice) {
  auto* memory = static_cast<float*>(allocate(4000, default_stream(1)));
  fill_uniform(memory, 1, default_stream(1));
  EXPECT_EQ(calls().front(), "curandCreateGenerator 161");
  auto* here = static_cast<float*>(allocate(4000, default_stream(0)));
  fill_uniform(here, 1, default_stream(0));
  EXPECT_EQ(calls().front(), "curandCreateGenerator 161");
  deallocate(memory);
  deallocate(here);
}

TEST_F(Curand, ThatFailsIsATypedErrorAndTakesNothing) {
  auto* memory = static_cast<float*>(allocate(4000));
  fill_uniform(memory, 5);
  const RngState before = get_rng_state();
  for (const char* function : {"curandSetStream", "curandSetGeneratorOffset", "curandGenerateUniform"}) {
    setenv("CISTERN_FAKE_CURAND_FAILS", function, 1);
    try {
      fill_uniform(memory, 5);
      ADD_FAILURE() << function;
    } catch (const LibraryError& error) {
      EXPECT_EQ(error.code(), CURAND_STATUS_LAUNCH_FAILURE);
      EXPECT_EQ(error.call(), function);
      EXPECT_THAT(error.what(), HasSubstr(function));
    }
    EXPECT_EQ(get_rng_state(), before);
  }
  unsetenv("CISTERN_FAKE_CURAND_FAILS");
  static_cast<void>(calls());
  fill_uniform(memory, 5);
  EXPECT_EQ(calls().front(), "curandSetStream");  // the generator was given back
  deallocate(memory);
}

TEST_F(Curand, ThatCannotMakeAGeneratorIsAskedAgain) {
  auto* memory = static_cast<float*>(allocate(4000));
  setenv("CISTERN_FAKE_CURAND_FAILS", "curandSetGeneratorOrdering", 1);
  EXPECT_THROW(fill_uniform(memory, 5), LibraryError);
  EXPECT_EQ(calls().back(), "curandDestroyGenerator");
  unsetenv("CISTERN_FAKE_CURAND_FAILS");
  fill_uniform(memory, 5);
  EXPECT_EQ(calls().front(), "curandCreateGenerator 161");
  deallocate(memory);
}

TEST_F(Curand, IsCalledInACaptureThatForbidsAllocations) {
  auto* memory = static_cast<float*>(allocate(4000));
  const Stream stream = Stream::create();
  stream.begin_capture(CaptureMode::global);
  fill_uniform(memory, 5, stream);
  EXPECT_EQ(stream.is_capturing(), CaptureStatus::active);
  static_cast<void>(stream.end_capture());
  deallocate(memory);
}

TEST_F(Curand, ThatIsNotThereIsNotSupported) {
  auto* memory = static_cast<float*>(allocate(4000));
  setenv("CISTERN_LIBCURAND", "/nowhere/libcurand.so.10", 1);
  try {
    fill_uniform(memory, 5);
    ADD_FAILURE();
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("cuRAND"));
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/libcurand.so.10"));
  }
  setenv("CISTERN_LIBCURAND", CISTERN_FAKE_LIBCUDA, 1);
  EXPECT_THROW(fill_uniform(memory, 5), NotSupported);  // a library without its functions
  setenv("CISTERN_LIBCURAND", CISTERN_FAKE_LIBCURAND, 1);
  EXPECT_EQ(get_rng_state()[8], 0);
  fill_uniform(memory, 5);  // now it is
  deallocate(memory);
}

// cuRAND itself needs no device for generators of host memory, which give what those of devices give.
class HostCurand : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen("libcurand.so.10", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) GTEST_SKIP() << dlerror();
    find(destroy_, "curandDestroyGenerator");
    decltype(&curandCreateGeneratorHost) create = nullptr;
    find(create, "curandCreateGeneratorHost");
    ASSERT_EQ(create(&generator_, CURAND_RNG_PSEUDO_PHILOX4_32_10), CURAND_STATUS_SUCCESS);
    decltype(&curandSetGeneratorOrdering) set_order = nullptr;
    find(set_order, "curandSetGeneratorOrdering");
    ASSERT_EQ(set_order(generator_, CURAND_ORDERING_PSEUDO_LEGACY), CURAND_STATUS_SUCCESS);
  }
  void TearDown() override {
    if (generator_ != nullptr) destroy_(generator_);
  }
  template <class Function>
  void find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(dlsym(library_, symbol));
    ASSERT_NE(function, nullptr) << symbol;
  }
  void seek(const RandomFill& fill) {
    decltype(&curandSetPseudoRandomGeneratorSeed) set_seed = nullptr;
    decltype(&curandSetGeneratorOffset) set_offset = nullptr;
    find(set_seed, "curandSetPseudoRandomGeneratorSeed");
    find(set_offset, "curandSetGeneratorOffset");
    ASSERT_EQ(set_seed(generator_, fill.seed), CURAND_STATUS_SUCCESS);
    ASSERT_EQ(set_offset(generator_, fill.position), CURAND_STATUS_SUCCESS);
  }
  static std::vector<float> ours(const RandomFill& fill) {
    std::vector<float> values(fill.count);
    write_random_values(fill, 0, fill.count, values.data());
    return values;
  }

  curandGenerator_t generator_ = nullptr;

 private:
  void* library_ = nullptr;
  decltype(&curandDestroyGenerator) destroy_ = nullptr;
};

TEST_F(HostCurand, GivesTheSameUniformValues) {
  decltype(&curandGenerateUniform) generate = nullptr;
  find(generate, "curandGenerateUniform");
  for (const auto& [position, count] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {0, 1'000'000}, {1, 7}, {262'143, 262'150}, {(std::uint64_t{1} << 33) + 5, 1001}}) {
    const RandomFill fill{.kind = RandomKind::uniform, .count = count, .seed = 0x123456789abcdef, .position = position};
    seek(fill);
    std::vector<float> values(count);
    ASSERT_EQ(generate(generator_, values.data(), count), CURAND_STATUS_SUCCESS);
    EXPECT_TRUE(values == ours(fill)) << position;
  }
}

TEST_F(HostCurand, GivesTheSameNormalValuesButForTheLastBits) {
  decltype(&curandGenerateNormal) generate = nullptr;
  find(generate, "curandGenerateNormal");
  for (const auto& [position, count] :
       std::vector<std::pair<std::uint64_t, std::size_t>>{{0, 300'000}, {2, 7}, {262'142, 262'151}}) {
    const RandomFill fill{.kind = RandomKind::normal,
                          .count = count,
                          .seed = 7,
                          .position = position,
                          .mean = 1,
                          .standard_deviation = 2};
    seek(fill);
    std::vector<float> values(count);
    ASSERT_EQ(generate(generator_, values.data(), count, 1, 2), CURAND_STATUS_SUCCESS);
    const std::vector<float> expected = ours(fill);
    // The angle's last bits are those of a float near 2 pi.
    for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(values[i], expected[i], 1e-5) << position << " + " << i;
  }
}

}  // namespace
}  // namespace cistern
