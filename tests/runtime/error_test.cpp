// The errors: what they carry, and how they are caught.

#include <cistern/error.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/driver_error.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

TEST(DriverErrors, NameTheCallTheObjectAndTheDriversWords) {
  const SimulatedDriver driver;
  try {
    check_driver(driver.api(), CUDA_ERROR_INVALID_VALUE, DriverEntryId::mem_free,
                 [] { return std::string("segment 0x7f0000000000"); });
    FAIL() << "a failure went unnoticed";
  } catch (const DriverError& error) {
    EXPECT_EQ(error.code(), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(error.call(), "cuMemFree");
    EXPECT_THAT(error.what(),
                StrEq("cuMemFree of segment 0x7f0000000000: " + driver_words(driver.api(), CUDA_ERROR_INVALID_VALUE)));
    EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_INVALID_VALUE (invalid argument)"));
  }
}

TEST(DriverErrors, TextOfTheObjectIsBuiltOnFailureOnly) {
  const SimulatedDriver driver;
  check_driver(driver.api(), CUDA_SUCCESS, DriverEntryId::mem_free, []() -> std::string {
    ADD_FAILURE() << "text was built for a success";
    return {};
  });
}

TEST(DriverErrors, NumberThatTheDriverDoesNotKnowIsShownAsItIs) {
  const SimulatedDriver driver;
  EXPECT_EQ(driver_words(driver.api(), static_cast<CUresult>(997)), "error 997");
  EXPECT_EQ(driver_words(DriverApi{}, CUDA_ERROR_NOT_READY), "error 600");
}

TEST(DriverErrors, NoWordsAreAskedOfADriverThatPermitsNoCall) {
  const SimulatedDriver driver;
  const std::uint64_t calls = driver.calls();
  EXPECT_EQ(driver_words(driver.api(), CUDA_ERROR_NOT_PERMITTED), "CUDA_ERROR_NOT_PERMITTED (operation not permitted)");
  EXPECT_EQ(driver.calls(), calls);
}

template <class Thrown, class Standard>
void expect_caught_both_ways(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), thrown.what());
  }
  try {
    throw thrown;
  } catch (const Standard& error) {
    EXPECT_STREQ(error.what(), thrown.what());
  }
}

TEST(Errors, AreCaughtAsOursAndAsTheStandardsKind) {
  expect_caught_both_ways<InvalidArgument, std::invalid_argument>(InvalidArgument("argument"));
  expect_caught_both_ways<NotReady, std::runtime_error>(NotReady("not ready"));
  expect_caught_both_ways<NotSupported, std::runtime_error>(NotSupported("not supported"));
  expect_caught_both_ways<DriverError, std::exception>(DriverError(1, "cuInit", "driver"));
  expect_caught_both_ways<OutOfMemoryError, std::bad_alloc>(OutOfMemoryError({}, "out of memory"));
}

TEST(Errors, CausesOfOutOfMemoryHaveWords) {
  EXPECT_STREQ(to_string(OutOfMemoryCause::device_full), "device full");
  EXPECT_STREQ(to_string(OutOfMemoryCause::fragmented), "fragmented");
  EXPECT_STREQ(to_string(OutOfMemoryCause::limit), "limit");
  EXPECT_STREQ(to_string(OutOfMemoryCause::pending_frees), "pending frees");
  EXPECT_STREQ(to_string(OutOfMemoryCause::driver_refusal), "driver refusal");
  EXPECT_STREQ(to_string(OutOfMemoryCause::too_large), "too large");
}

}  // namespace
}  // namespace cistern
