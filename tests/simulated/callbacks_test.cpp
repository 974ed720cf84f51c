// cuStreamAddCallback and cuLaunchHostFunc: CUDA driver API, "Stream Management" and "Execution
// Control".
#include <gtest/gtest.h>

#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

struct Called {
  CUstream stream = nullptr;
  CUresult status = CUDA_ERROR_UNKNOWN;
  int times = 0;
  static void by_driver(CUstream stream, CUresult status, void* data) {
    auto& called = *static_cast<Called*>(data);
    called = {stream, status, called.times + 1};
  }
};

TEST(SimulatedCallbacks, RunInStreamOrderOnceAndAreToldTheStream) {
  ReadyDriver ready;
  Called called;
  std::vector<int> order;
  const StreamHandle stream = ready.driver.create_stream();
  ready.note(stream, order, 1);
  EXPECT_EQ(ready.api.stream_add_callback(stream, Called::by_driver, &called, 0), CUDA_SUCCESS);
  ready.driver.launch(stream, {}, {}, 0ns, [&] { order.push_back(called.times); });
  EXPECT_EQ(called.times, 0);
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 1}));
  EXPECT_EQ(called.stream, stream);
  EXPECT_EQ(called.status, CUDA_SUCCESS);
  EXPECT_EQ(called.times, 1);
}

TEST(SimulatedCallbacks, OnADefaultStreamAreToldTheHandleThatWasUsed) {
  ReadyDriver ready;
  Called called;
  for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(ready.api.stream_add_callback(stream, Called::by_driver, &called, 0), CUDA_SUCCESS);
    EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(called.stream, stream);
  }
}

TEST(SimulatedCallbacks, FlagsAndNullFunctionsAreRefused) {
  ReadyDriver ready;
  Called called;
  const StreamHandle stream = ready.driver.create_stream();
  EXPECT_EQ(ready.api.stream_add_callback(stream, Called::by_driver, &called, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_add_callback(stream, nullptr, &called, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
  ready.driver.destroy_stream(stream);
  EXPECT_EQ(ready.api.stream_add_callback(stream, Called::by_driver, &called, 0), CUDA_ERROR_INVALID_HANDLE);
}

TEST(SimulatedCallbacks, RunAfterAFailureAndAreToldOfItWhileHostFunctionsAreDropped) {
  ReadyDriver ready;
  Called before;
  Called after;
  int host_functions = 0;
  const auto count = [](void* data) { ++*static_cast<int*>(data); };
  const StreamHandle stream = ready.driver.create_stream();
  EXPECT_EQ(ready.api.stream_add_callback(stream, Called::by_driver, &before, 0), CUDA_SUCCESS);
  ready.driver.launch(stream, {}, {}, 0ns, [] { throw 42; });
  EXPECT_EQ(ready.api.launch_host_func(stream, count, &host_functions), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_add_callback(stream, Called::by_driver, &after, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(before.status, CUDA_SUCCESS);
  EXPECT_EQ(after.status, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(after.times, 1);
  EXPECT_EQ(host_functions, 0);
}

TEST(SimulatedCallbacks, CallsOfTheDriverInThemAreRefusedCountedAndNamed) {
  ReadyDriver ready;
  EXPECT_EQ(ready.driver.calls_from_operations(), 0u);
  EXPECT_EQ(ready.driver.first_call_from_operations(), "");
  struct Caller {
    const DriverApi* api;
    std::vector<CUresult> results;
  } caller{&ready.api, {}};
  const auto call = [](CUstream stream, CUresult, void* data) {
    auto& self = *static_cast<Caller*>(data);
    self.results.push_back(self.api->stream_query(stream));
    self.results.push_back(self.api->ctx_synchronize());
  };
  EXPECT_EQ(ready.api.stream_add_callback(nullptr, call, &caller, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(caller.results, (std::vector<CUresult>{CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED}));
  EXPECT_EQ(ready.driver.calls_from_operations(), 2u);
  EXPECT_EQ(ready.driver.first_call_from_operations(), "cuStreamQuery");
}

TEST(SimulatedCallbacks, MayCallAnotherDriver) {
  ReadyDriver other;
  ReadyDriver ready;
  struct Caller {
    ReadyDriver* other;
    CUresult result;
  } caller{&other, CUDA_ERROR_UNKNOWN};
  const auto call = [](void* data) {
    auto& self = *static_cast<Caller*>(data);
    self.result = self.other->api.ctx_synchronize();
  };
  EXPECT_EQ(ready.api.launch_host_func(nullptr, call, &caller), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(caller.result, CUDA_SUCCESS);
  EXPECT_EQ(other.driver.calls_from_operations(), 0u);
}

TEST(SimulatedCallbacks, AFaultThatIsSetUpIsNotSpentOnARefusedCall) {
  ReadyDriver ready;
  const auto call = [](void* api) {
    EXPECT_EQ(static_cast<const DriverApi*>(api)->ctx_synchronize(), CUDA_ERROR_NOT_PERMITTED);
  };
  EXPECT_EQ(ready.api.launch_host_func(nullptr, call, const_cast<DriverApi*>(&ready.api)), CUDA_SUCCESS);
  ready.driver.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_UNKNOWN);
  ready.driver.run_until_idle();
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_ERROR_UNKNOWN);
}

}  // namespace
}  // namespace cistern
