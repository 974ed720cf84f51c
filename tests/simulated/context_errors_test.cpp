// Wrong use of contexts, streams and events: each with the code that the driver has for it
// (CUDA driver API, CUresult, and the "Returns" of each entry).
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/simulated/driver_fixture.h"
#include "tests/simulated/gate.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::Gate;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

struct NamedCall {
  std::string name;
  std::function<CUresult()> call;
};

// Each entry about streams and events, with arguments that are right while stream and event live.
std::vector<NamedCall> stream_calls(const DriverApi& api, CUstream stream) {
  static int priority;
  static unsigned flags;
  static unsigned long long id;
  static CUcontext context;
  const auto nothing = [](void*) {};
  const auto no_callback = [](CUstream, CUresult, void*) {};
  return {
      {"cuStreamQuery", [=, &api] { return api.stream_query(stream); }},
      {"cuStreamSynchronize", [=, &api] { return api.stream_synchronize(stream); }},
      {"cuStreamGetPriority", [=, &api] { return api.stream_get_priority(stream, &priority); }},
      {"cuStreamGetFlags", [=, &api] { return api.stream_get_flags(stream, &flags); }},
      {"cuStreamGetId", [=, &api] { return api.stream_get_id(stream, &id); }},
      {"cuStreamGetCtx", [=, &api] { return api.stream_get_ctx(stream, &context); }},
      {"cuLaunchHostFunc", [=, &api] { return api.launch_host_func(stream, nothing, nullptr); }},
      {"cuStreamAddCallback", [=, &api] { return api.stream_add_callback(stream, no_callback, nullptr, 0); }},
  };
}

std::vector<NamedCall> event_calls(const DriverApi& api, CUevent event, CUstream stream) {
  return {
      {"cuEventQuery", [=, &api] { return api.event_query(event); }},
      {"cuEventSynchronize", [=, &api] { return api.event_synchronize(event); }},
      {"cuEventRecord", [=, &api] { return api.event_record(event, stream); }},
      {"cuEventRecordWithFlags", [=, &api] { return api.event_record_with_flags(event, stream, 0); }},
      {"cuStreamWaitEvent", [=, &api] { return api.stream_wait_event(stream, event, 0); }},
  };
}

std::vector<NamedCall> context_calls(const DriverApi& api) {
  static CUstream stream;
  static CUevent event;
  static CUdeviceptr pointer;
  static std::size_t bytes;
  static int least;
  return {
      {"cuCtxSynchronize", [&api] { return api.ctx_synchronize(); }},
      {"cuCtxGetStreamPriorityRange", [&api] { return api.ctx_get_stream_priority_range(&least, &least); }},
      {"cuStreamCreateWithPriority", [&api] { return api.stream_create_with_priority(&stream, 0, 0); }},
      {"cuEventCreate", [&api] { return api.event_create(&event, 0); }},
      {"cuMemAlloc", [&api] { return api.mem_alloc(&pointer, 512); }},
      {"cuMemGetInfo", [&api] { return api.mem_get_info(&bytes, &bytes); }},
  };
}

void expect_all(const std::vector<NamedCall>& calls, CUresult expected) {
  for (const NamedCall& named : calls) EXPECT_EQ(named.call(), expected) << named.name;
}

TEST(ContextErrors, WithoutACurrentContextWhatNeedsOneFails) {
  ReadyDriver ready;
  const CUstream stream = ready.create_blocking_stream();
  EXPECT_EQ(ready.api.ctx_set_current(nullptr), CUDA_SUCCESS);
  expect_all(context_calls(ready.api), CUDA_ERROR_INVALID_CONTEXT);
  CUdevice device = 0;
  EXPECT_EQ(ready.api.ctx_get_device(&device), CUDA_ERROR_INVALID_CONTEXT);
  for (const CUstream handle : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    expect_all(stream_calls(ready.api, handle), CUDA_ERROR_INVALID_CONTEXT);
  }
  expect_all(stream_calls(ready.api, stream), CUDA_SUCCESS);  // it names its context
}

TEST(ContextErrors, AReleasedContextCannotBeUsedUntilItIsRetainedAgain) {
  ReadyDriver ready;
  const CUstream stream = ready.create_blocking_stream();
  const CUevent event = ready.create_event();
  unsigned flags = 1;
  int active = 0;
  EXPECT_EQ(ready.api.primary_ctx_get_state(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(ready.api.primary_ctx_release(0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.primary_ctx_get_state(0, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  expect_all(context_calls(ready.api), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_all(stream_calls(ready.api, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  expect_all(event_calls(ready.api, event, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(ready.api.primary_ctx_release(0), CUDA_ERROR_INVALID_CONTEXT);
  ready.use(0);
  expect_all(context_calls(ready.api), CUDA_SUCCESS);
}

TEST(ContextErrors, TheStateOfAContextNeedsADeviceAndPlacesToPutIt) {
  ReadyDriver ready;
  unsigned flags = 0;
  int active = 0;
  EXPECT_EQ(ready.api.primary_ctx_get_state(1, &flags, &active), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(ready.api.primary_ctx_get_state(0, nullptr, &active), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.primary_ctx_get_state(0, &flags, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(ContextErrors, BeforeInitOnlyTheVersionAndTheWordsOfErrorsAreKnown) {
  const SimulatedDriver driver({.capacity_bytes = 16 * MiB});
  const DriverApi& api = driver.api();
  expect_all(context_calls(api), CUDA_ERROR_NOT_INITIALIZED);
  expect_all(stream_calls(api, nullptr), CUDA_ERROR_NOT_INITIALIZED);
  expect_all(event_calls(api, nullptr, nullptr), CUDA_ERROR_NOT_INITIALIZED);
  int number = 0;
  const char* words = nullptr;
  EXPECT_EQ(api.device_get_count(&number), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(api.driver_get_version(&number), CUDA_SUCCESS);
  EXPECT_EQ(api.get_error_name(CUDA_ERROR_UNKNOWN, &words), CUDA_SUCCESS);
  EXPECT_EQ(api.init(1), CUDA_ERROR_INVALID_VALUE);
}

TEST(ContextErrors, HandlesThatAreNoneAreToldApart) {
  ReadyDriver ready;
  const CUstream destroyed = ready.create_blocking_stream();
  const CUstream live = ready.create_blocking_stream();
  EXPECT_EQ(ready.api.stream_destroy(destroyed), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_destroy(destroyed), CUDA_ERROR_INVALID_HANDLE);
  for (const CUstream handle : {destroyed, reinterpret_cast<CUstream>(std::uintptr_t{0x1234})}) {
    expect_all(stream_calls(ready.api, handle), CUDA_ERROR_INVALID_HANDLE);
  }
  const CUevent event = ready.create_event();
  expect_all(event_calls(ready.api, event, live), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
  expect_all(event_calls(ready.api, event, live), CUDA_ERROR_INVALID_HANDLE);
  expect_all(event_calls(ready.api, nullptr, live), CUDA_ERROR_INVALID_HANDLE);
  // An event is no stream, and the other way round.
  EXPECT_EQ(ready.api.stream_query(reinterpret_cast<CUstream>(ready.create_event())), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ready.api.event_query(reinterpret_cast<CUevent>(live)), CUDA_ERROR_INVALID_HANDLE);
}

TEST(ContextErrors, NullPlacesForResultsAreInvalidValues) {
  ReadyDriver ready;
  EXPECT_EQ(ready.api.stream_create_with_priority(nullptr, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_get_priority(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_get_flags(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_get_id(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_get_ctx(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.event_create(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.ctx_get_current(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.ctx_get_device(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(ContextErrors, ExternalRecordsAndWaitsAreForCaptureOnly) {
  ReadyDriver ready;
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.event_record_with_flags(event, nullptr, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.event_record_with_flags(event, nullptr, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_wait_event(nullptr, event, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.stream_wait_event(nullptr, event, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ready.api.event_record_with_flags(event, nullptr, CU_EVENT_RECORD_DEFAULT), CUDA_SUCCESS);
}

TEST(ContextErrors, EventsAndStreamsOfOtherDevicesAreToldApartWhereItMatters) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUevent event = ready.create_event();
  const CUstream here = ready.create_blocking_stream();
  ready.use(1);
  const CUstream there = ready.create_blocking_stream();
  EXPECT_EQ(ready.api.event_record(event, there), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ready.api.event_record(event, nullptr), CUDA_ERROR_INVALID_HANDLE);  // the current device's
  EXPECT_EQ(ready.api.event_record(event, here), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(there, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS);
  CUcontext mine = nullptr;
  CUcontext of_stream = nullptr;
  EXPECT_EQ(ready.api.ctx_get_current(&mine), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_get_ctx(here, &of_stream), CUDA_SUCCESS);
  EXPECT_NE(of_stream, mine);
  EXPECT_EQ(ready.api.stream_get_ctx(there, &of_stream), CUDA_SUCCESS);
  EXPECT_EQ(of_stream, mine);
}

TEST(ContextErrors, AnEventDestroyedWhilePendingStillOrdersWhatWaitedForIt) {
  ReadyDriver ready;
  std::vector<int> order;
  const CUstream producer = ready.create_blocking_stream();
  const CUstream consumer = ready.create_blocking_stream();
  const CUevent event = ready.create_event();
  ready.note(producer, order, 1);
  EXPECT_EQ(ready.api.event_record(event, producer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_wait_event(consumer, event, 0), CUDA_SUCCESS);
  ready.note(consumer, order, 2);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_destroy(producer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_synchronize(consumer), CUDA_SUCCESS);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(ContextErrors, AStreamOrEventMayBeDestroyedUnderAThreadThatWaitsForIt) {
  Gate stream_gate;
  Gate event_gate;
  ReadyDriver ready({.capacity_bytes = 16 * MiB, .drive = Drive::free});
  const CUstream stream = ready.create_blocking_stream();
  const CUstream other = ready.create_blocking_stream();
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.launch_host_func(stream, Gate::pass, &stream_gate), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.launch_host_func(other, Gate::pass, &event_gate), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_record(event, other), CUDA_SUCCESS);
  std::thread waits_for_stream([&] { EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS); });
  std::thread waits_for_event([&] { EXPECT_EQ(ready.api.event_synchronize(event), CUDA_SUCCESS); });
  while (ready.driver.host_synchronizations() < 2) std::this_thread::yield();
  EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_SUCCESS);
  const CUstream in_its_place = ready.create_blocking_stream();
  EXPECT_EQ(ready.api.stream_query(in_its_place), CUDA_SUCCESS);
  stream_gate.open();
  event_gate.open();
  waits_for_stream.join();
  waits_for_event.join();
}

}  // namespace
}  // namespace cistern
