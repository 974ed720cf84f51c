// Primary contexts and the guard that makes one current.

#include <cistern/error.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/context.h"
#include "tests/message_of.h"

namespace cistern {
namespace {

using ::testing::HasSubstr;

CUcontext current_context(const DriverApi& api) {
  CUcontext context = nullptr;
  EXPECT_EQ(api.ctx_get_current(&context), CUDA_SUCCESS);
  return context;
}

TEST(Contexts, AreRetainedWhenFirstAskedForAndReleasedOnce) {
  const SimulatedDriver driver({.devices = 2});
  {
    Contexts contexts(driver.api());
    EXPECT_EQ(contexts.device_count(), 2);
    EXPECT_EQ(driver.calls("cuDevicePrimaryCtxRetain"), 0U);
    EXPECT_EQ(contexts.primary(1), contexts.primary(1));
    EXPECT_EQ(driver.calls("cuDevicePrimaryCtxRetain"), 1U);
  }
  EXPECT_EQ(driver.calls("cuDevicePrimaryCtxRelease"), 1U);
}

TEST(Contexts, DeviceThatIsNotThereIsNamedWithTheRange) {
  const SimulatedDriver driver({.devices = 2});
  Contexts contexts(driver.api());
  const auto text = message_of([&] { static_cast<void>(contexts.primary(2)); });
  EXPECT_THAT(text, HasSubstr("device 2"));
  EXPECT_THAT(text, HasSubstr("from 0 to 1"));
  EXPECT_THROW(contexts.require(-1), InvalidArgument);
}

TEST(Contexts, NoDeviceIsNotSupported) {
  SimulatedOptions hidden;
  hidden.set_visible_devices("");
  const SimulatedDriver driver(hidden);
  EXPECT_THROW(Contexts{driver.api()}, NotSupported);
  EXPECT_THAT(message_of([&] { Contexts{driver.api()}; }), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(Contexts, EveryFailingCallIsReportedByName) {
  for (const char* entry : {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"}) {
    SimulatedDriver driver;
    driver.fail_call(entry, 1, CUDA_ERROR_UNKNOWN);
    try {
      Contexts contexts(driver.api());
      static_cast<void>(contexts.primary(0));
      ADD_FAILURE() << entry << " failed unnoticed";
    } catch (const DriverError& error) {
      EXPECT_EQ(error.call(), entry);
      EXPECT_EQ(error.code(), CUDA_ERROR_UNKNOWN);
    }
  }
}

TEST(Contexts, RefusedRetainIsTriedAgain) {
  SimulatedDriver driver;
  Contexts contexts(driver.api());
  driver.fail_call("cuDevicePrimaryCtxRetain", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THROW(static_cast<void>(contexts.primary(0)), DriverError);
  EXPECT_NE(contexts.primary(0), nullptr);
}

TEST(ContextGuard, RestoresWhatWasCurrentThroughNesting) {
  const SimulatedDriver driver({.devices = 2});
  Contexts contexts(driver.api());
  EXPECT_EQ(current_context(driver.api()), nullptr);
  {
    const ContextGuard outer(driver.api(), contexts.primary(0));
    {
      const ContextGuard inner(driver.api(), contexts.primary(1));
      EXPECT_EQ(current_context(driver.api()), contexts.primary(1));
    }
    EXPECT_EQ(current_context(driver.api()), contexts.primary(0));
  }
  EXPECT_EQ(current_context(driver.api()), nullptr);
}

TEST(ContextGuard, MakesNoCallButTheQuestionWhenTheContextIsCurrent) {
  const SimulatedDriver driver;
  Contexts contexts(driver.api());
  const ContextGuard outer(driver.api(), contexts.primary(0));
  const auto set_calls = driver.calls("cuCtxSetCurrent");
  { const ContextGuard inner(driver.api(), contexts.primary(0)); }
  EXPECT_EQ(driver.calls("cuCtxSetCurrent"), set_calls);
}

TEST(ContextGuard, RefusalLeavesWhatWasCurrent) {
  SimulatedDriver driver({.devices = 2});
  Contexts contexts(driver.api());
  const ContextGuard outer(driver.api(), contexts.primary(0));
  driver.fail_call("cuCtxSetCurrent", 1, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_THROW(ContextGuard(driver.api(), contexts.primary(1)), DriverError);
  EXPECT_EQ(current_context(driver.api()), contexts.primary(0));
}

}  // namespace
}  // namespace cistern
