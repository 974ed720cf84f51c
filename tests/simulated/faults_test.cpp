#include <cistern/error.h>

#include <gtest/gtest.h>

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

TEST(SimulatedFaults, UnknownEntriesAndCallZeroAreRefused) {
  ReadyDriver ready;
  EXPECT_THROW(ready.driver.fail_call("cuMemAllocate", 1, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_call("cuMemAlloc", 0, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(ready.driver.fail_call("cuMemAlloc", 1, CUDA_SUCCESS), InvalidArgument);
  EXPECT_THROW((void)ready.driver.calls("memAlloc"), InvalidArgument);
  EXPECT_THROW(ready.driver.set_cost("", 1ns), InvalidArgument);
  try {
    ready.driver.fail_call("cuMemAllocate", 1, CUDA_ERROR_UNKNOWN);
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("'cuMemAllocate'"), std::string::npos);
  }
}

}  // namespace
}  // namespace cistern
