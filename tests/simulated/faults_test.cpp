#include <cistern/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(SimulatedFaults, TheKthCallOfAnEntryFailsOnce) {
  ReadyDriver ready;
  ready.driver.fail_call("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
  CUdeviceptr pointer = 0;
  CUevent event = nullptr;
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_create(&event, 0), CUDA_SUCCESS);
  pointer = 42;
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pointer, 42u);
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.faults_injected(), 1u);
}

TEST(SimulatedFaults, AFailedCallChangesNothing) {
  ReadyDriver ready;
  const StreamHandle stream = ready.driver.create_stream();
  const CUdeviceptr pointer = ready.allocate(4 * MiB);
  const CUevent event = ready.create_event();
  ready.driver.occupy(stream, 1ms);
  EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
  const auto fails = [&](const char* entry, auto call) {
    ready.driver.fail_call(entry, 1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(call(), CUDA_ERROR_UNKNOWN) << entry;
  };
  fails("cuMemFree", [&] { return ready.api.mem_free(pointer); });
  fails("cuStreamSynchronize", [&] { return ready.api.stream_synchronize(stream); });
  fails("cuEventSynchronize", [&] { return ready.api.event_synchronize(event); });
  fails("cuEventDestroy", [&] { return ready.api.event_destroy(event); });
  fails("cuStreamDestroy", [&] { return ready.api.stream_destroy(stream); });
  fails("cuMemsetD8Async", [&] { return ready.api.memset_d8_async(pointer, 1, 1, stream); });
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.driver.virtual_time(), 0ns);
  EXPECT_EQ(ready.driver.host_synchronizations(), 0u);
  EXPECT_TRUE(ready.driver.step());
  EXPECT_FALSE(ready.driver.step());
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
}

TEST(SimulatedFaults, AnyEntryCanBeMeant) {
  ReadyDriver ready;
  ready.driver.fail_call("", 3, CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr pointer = 0;
  CUevent event = nullptr;
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_create(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
}

TEST(SimulatedFaults, SeveralAreIndependent) {
  ReadyDriver ready;
  ready.driver.fail_call("cuEventQuery", 1, CUDA_ERROR_UNKNOWN);
  ready.driver.fail_call("cuEventQuery", 3, CUDA_ERROR_INVALID_VALUE);
  ready.driver.fail_call("", 4, CUDA_ERROR_NOT_SUPPORTED);
  const CUevent event = ready.create_event();
  std::vector<CUresult> results;
  for (int i = 0; i < 4; ++i) results.push_back(ready.api.event_query(event));
  // The creation was call 1 of any entry, so that one and the third query's fall together.
  EXPECT_EQ(results, (std::vector<CUresult>{CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS}));
  EXPECT_EQ(ready.driver.faults_injected(), 2u);
}

TEST(SimulatedFaults, ThoseStillToComeCanBeDropped) {
  ReadyDriver ready;
  ready.driver.fail_call("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
  ready.driver.clear_faults();
  ready.allocate(512);
  EXPECT_EQ(ready.driver.faults_injected(), 0u);
}

TEST(SimulatedFaults, TheSameSeedFailsTheSameCalls) {
  const auto failures = [](std::uint64_t seed, double probability) {
    ReadyDriver ready;
    const CUevent event = ready.create_event();
    ready.driver.fail_at_random("cuEventQuery", probability, seed, CUDA_ERROR_UNKNOWN);
    std::vector<bool> failed;
    for (int i = 0; i < 1000; ++i) {
      failed.push_back(ready.api.event_query(event) == CUDA_ERROR_UNKNOWN);
      EXPECT_EQ(ready.api.stream_query(nullptr), CUDA_SUCCESS);  // another entry
    }
    EXPECT_EQ(ready.driver.faults_injected(),
              static_cast<std::uint64_t>(std::count(failed.begin(), failed.end(), true)));
    return failed;
  };
  const auto count = [](const std::vector<bool>& failed) { return std::count(failed.begin(), failed.end(), true); };
  EXPECT_EQ(failures(7, 0.25), failures(7, 0.25));
  EXPECT_NE(failures(7, 0.25), failures(8, 0.25));
  EXPECT_GT(count(failures(7, 0.25)), 200);
  EXPECT_LT(count(failures(7, 0.25)), 300);
  EXPECT_EQ(count(failures(7, 0)), 0);
  EXPECT_EQ(count(failures(7, 1)), 1000);
}

TEST(SimulatedFaults, AnyEntryMayFailAtRandom) {
  ReadyDriver ready;
  ready.driver.fail_at_random("", 1, 7, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ready.api.stream_query(nullptr), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_ERROR_UNKNOWN);
  ready.driver.clear_faults();
  EXPECT_EQ(ready.api.stream_query(nullptr), CUDA_SUCCESS);
}

TEST(SimulatedFaults, RequestsFromASizeOnFailWhateverIsFree) {
  ReadyDriver ready;
  ready.driver.refuse_requests_from(4 * MiB);
  CUdeviceptr pointer = 42;
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 4 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 5 * MiB), CUDA_ERROR_OUT_OF_MEMORY);
  CUmemGenericAllocationHandle handle = 42;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_EQ(ready.api.mem_create(&handle, 4 * MiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pointer, 42u);
  EXPECT_EQ(handle, 42u);
  EXPECT_EQ(ready.driver.used_bytes(), 0u);
  EXPECT_EQ(ready.driver.faults_injected(), 3u);
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 4 * MiB - 1), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_create(&handle, 2 * MiB, &properties, 0), CUDA_SUCCESS);
  ready.driver.clear_faults();
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 64 * MiB), CUDA_SUCCESS);
}

TEST(SimulatedFaults, AStickyErrorIsAnsweredByEveryLaterCallOfItsContext) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  const CUevent event = ready.create_event();
  const CUstream stream = ready.create_blocking_stream();
  ready.driver.fail_call_for_good("cuEventQuery", 2, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr pointer = 0;
  CUevent another = nullptr;
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.stream_synchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.event_create(&another, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.driver.faults_injected(), 1u);
  // Destroyed it is all the same, and says so no second time.
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ready.api.stream_destroy(stream), CUDA_ERROR_INVALID_HANDLE);
  ready.use(1);
  EXPECT_EQ(ready.api.mem_alloc(&pointer, 512), CUDA_SUCCESS);
}

TEST(SimulatedFaults, ADeviceThatFailsNowDropsWhatIsQueued) {
  ReadyDriver ready({.devices = 2, .capacity_bytes = 16 * MiB});
  std::vector<int> order;
  ready.note(nullptr, order, 1);
  ready.driver.fail_device(0, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(ready.api.stream_query(nullptr), CUDA_ERROR_LAUNCH_TIMEOUT);
  ready.driver.run_until_idle();
  EXPECT_TRUE(order.empty());
  ready.use(1);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_THROW(ready.driver.fail_device(2, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_device(0, CUDA_SUCCESS), InvalidArgument);
}

TEST(SimulatedFaults, ADriverThatIsGoneAnswersNothingElse) {
  ReadyDriver ready;
  const CUdeviceptr pointer = ready.allocate(512);
  const CUevent event = ready.create_event();
  ready.driver.shut_down();
  int version = 0;
  const char* words = nullptr;
  CUcontext context = nullptr;
  EXPECT_EQ(ready.api.init(0), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ready.api.driver_get_version(&version), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ready.api.get_error_name(CUDA_ERROR_UNKNOWN, &words), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ready.api.event_destroy(event), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ready.api.ctx_get_current(&context), CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(ready.api.primary_ctx_release(0), CUDA_ERROR_DEINITIALIZED);
  EXPECT_GT(ready.driver.used_bytes(), 0u);
}

TEST(SimulatedFaults, UnknownEntriesAndCallZeroAreRefused) {
  ReadyDriver ready;
  EXPECT_THROW(ready.driver.fail_call("cuMemAllocate", 1, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_call("cuMemAlloc", 0, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_call("cuMemAlloc", 1, CUDA_SUCCESS), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_call_for_good("cuMemAlloc", 0, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_at_random("cuMemAllocate", 0.5, 1, CUDA_ERROR_UNKNOWN), InvalidArgument);
  for (const double probability : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(ready.driver.fail_at_random("", probability, 1, CUDA_ERROR_UNKNOWN), InvalidArgument);
  }
  EXPECT_THROW((void)ready.driver.calls("memAlloc"), InvalidArgument);
  EXPECT_THROW(ready.driver.set_cost("", 1ns), InvalidArgument);
  EXPECT_THROW(ready.driver.set_cost("cuMemAlloc", -1ns), InvalidArgument);
  try {
    ready.driver.fail_call("cuMemAllocate", 1, CUDA_ERROR_UNKNOWN);
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("'cuMemAllocate'"), std::string::npos);
  }
}

}  // namespace
}  // namespace cistern
