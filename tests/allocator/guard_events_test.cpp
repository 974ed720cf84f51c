// The event that a free waits for: what becomes of an idle one that is brought, recorded or not.

#include "allocator/guard_events.h"

#include <cistern/simulated.h>

#include <cuda.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "allocator/event_pools.h"
#include "runtime/context.h"
#include "runtime/driver_api.h"

namespace cistern {
namespace {

class GuardEventsTest : public ::testing::Test {
 protected:
  GuardEventsTest() {
    const ContextGuard current(api_, contexts_.primary(0));
    EXPECT_EQ(pools_.of(0).acquire(&idle_), CUDA_SUCCESS);
  }
  ~GuardEventsTest() override { pools_.of(0).release(idle_); }

  [[nodiscard]] StreamUse use_of(StreamHandle handle) {
    const ContextGuard current(api_, contexts_.primary(0));
    StreamUse use;
    EXPECT_EQ(identify_stream(api_, handle, &use.stream), CUDA_SUCCESS);
    return use;
  }
  [[nodiscard]] StreamUse kept_use() {
    StreamUse use = use_of(stream_);
    use.owner = std::make_shared<int>();
    return use;
  }
  // By a thread whose current context is none.
  CUresult record(const StreamUse& use, bool may_wait = true) {
    event_ = idle_;
    return record_guard(contexts_, pools_, use, false, may_wait, &event_);
  }
  // Nobody has the idle event, and nothing is to be waited for.
  void expect_idle() {
    EXPECT_EQ(event_, nullptr);
    const ContextGuard current(api_, contexts_.primary(0));
    CUevent next = nullptr;
    EXPECT_EQ(pools_.of(0).acquire(&next), CUDA_SUCCESS);
    EXPECT_EQ(next, idle_);
  }
  // `takes_in_context`: not where a context is current.
  void refuse_records_with(CUresult refusal, bool takes_in_context = false) {
    refusal_ = refusal;
    takes_in_context_ = takes_in_context;
    api_.event_record = {this, [](void* self, CUevent event, CUstream stream) {
                           auto& test = *static_cast<GuardEventsTest*>(self);
                           CUcontext current = nullptr;
                           EXPECT_EQ(test.api_.ctx_get_current(&current), CUDA_SUCCESS);
                           if (test.takes_in_context_ && current != nullptr)
                             return test.driver_.api().event_record(event, stream);
                           ++test.refused_;
                           return test.refusal_;
                         }};
  }

  SimulatedDriver driver_{{.devices = 2, .backing = Backing::none}};
  DriverApi api_ = driver_.api();
  Contexts contexts_{api_};
  EventPools pools_{api_, contexts_.device_count()};
  const StreamHandle stream_ = driver_.create_stream();
  CUevent idle_ = nullptr;
  CUevent event_ = nullptr;  // what the guard was asked with, and brought
  CUresult refusal_ = CUDA_SUCCESS;
  bool takes_in_context_ = false;
  int refused_ = 0;
};

TEST_F(GuardEventsTest, AnIdleEventIsTheOneThatIsRecorded) {
  EXPECT_EQ(record(use_of(stream_)), CUDA_SUCCESS);
  EXPECT_EQ(event_, idle_);
  EXPECT_EQ(driver_.calls("cuEventRecord"), 1U);
  EXPECT_EQ(driver_.calls("cuEventCreate"), 1U);
}

TEST_F(GuardEventsTest, AStreamThatIsKeptNeedsNoContext) {
  const StreamUse use = kept_use();
  const auto before = driver_.calls("cuCtxGetCurrent");
  EXPECT_EQ(record(use), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuCtxGetCurrent"), before);
  EXPECT_EQ(event_, idle_);
}

TEST_F(GuardEventsTest, AnEventThatIsRefusedIsIdleAgain) {
  const StreamUse use = kept_use();
  refuse_records_with(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(record(use), CUDA_ERROR_OUT_OF_MEMORY);
  expect_idle();
  EXPECT_EQ(refused_, 1) << "what is refused is not asked again";
}

TEST_F(GuardEventsTest, WhatWantsAContextGetsOne) {
  const StreamUse use = kept_use();
  refuse_records_with(CUDA_ERROR_INVALID_CONTEXT, true);
  EXPECT_EQ(record(use), CUDA_SUCCESS);
  EXPECT_EQ(event_, idle_);
  EXPECT_EQ(refused_, 1);
  CUcontext current = nullptr;
  EXPECT_EQ(api_.ctx_get_current(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
}

TEST_F(GuardEventsTest, WhatIsRefusedInItsContextIsIdleAgain) {
  const StreamUse use = kept_use();
  refuse_records_with(CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(record(use), CUDA_ERROR_INVALID_CONTEXT);
  expect_idle();
  EXPECT_EQ(refused_, 2);
}

TEST_F(GuardEventsTest, AnEventOfThePoolThatIsRefusedGoesBackThere) {
  refuse_records_with(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(record_guard(contexts_, pools_, use_of(stream_), false, true, &event_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(event_, nullptr);
  const auto made = driver_.calls("cuEventCreate");
  const ContextGuard current(api_, contexts_.primary(0));
  CUevent next = nullptr;
  EXPECT_EQ(pools_.of(0).acquire(&next), CUDA_SUCCESS);
  EXPECT_EQ(driver_.calls("cuEventCreate"), made);
  pools_.of(0).release(next);
}

// The default streams are those of the context that is current: here of another device.
TEST_F(GuardEventsTest, ADefaultStreamIsThatOfItsDevice) {
  driver_.occupy(nullptr, std::chrono::milliseconds(10));
  const ContextGuard current(api_, contexts_.primary(1));
  EXPECT_EQ(record(StreamUse{}), CUDA_SUCCESS);
  EXPECT_EQ(api_.event_query(idle_), CUDA_ERROR_NOT_READY);
  driver_.run_until_idle();
}

TEST_F(GuardEventsTest, AStreamWithoutAHandleIsWaitedForWithoutAnEvent) {
  const StreamUse use = use_of(stream_);
  driver_.destroy_stream(stream_);
  EXPECT_EQ(record(use, false), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_idle();
  EXPECT_EQ(record(use), CUDA_SUCCESS);
  expect_idle();
  EXPECT_EQ(driver_.calls("cuCtxSynchronize"), 1U);
}

TEST_F(GuardEventsTest, AStreamThatCapturesGetsNoEvent) {
  const StreamUse use = kept_use();
  {
    const ContextGuard current(api_, contexts_.primary(0));
    ASSERT_EQ(api_.stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  }
  EXPECT_EQ(record(use), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  expect_idle();
  EXPECT_EQ(driver_.calls("cuEventRecord"), 0U);
}

}  // namespace
}  // namespace cistern
