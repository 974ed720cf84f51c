// The event lag: events complete some ticks after their record, as a device that is behind does.
#include <gtest/gtest.h>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

ReadyDriver make_lagging(std::uint64_t ticks) {
  return ReadyDriver({.devices = 2, .capacity_bytes = 64 * MiB, .event_lag_ticks = ticks});
}

CUevent record(ReadyDriver& ready, CUstream stream = nullptr) {
  const CUevent event = ready.create_event();
  EXPECT_EQ(ready.api.event_record(event, stream), CUDA_SUCCESS);
  return event;
}

TEST(EventLag, AnEventOfOperationKIsCompleteOnceKPlusNOperationsHaveEnded) {
  for (const int lag : {0, 1, 3}) {
    auto ready = make_lagging(static_cast<std::uint64_t>(lag));
    ready.driver.tick();  // operation 0 has ended, operation 1 runs
    const CUevent event = record(ready);
    for (int ended = 1; ended < 1 + lag; ++ended) {
      EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY) << "lag " << lag << ", ended " << ended;
      ready.driver.tick();
    }
    EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS) << "lag " << lag;
  }
}

TEST(EventLag, TheStreamsWorkMustBeDoneToo) {
  auto ready = make_lagging(1);
  const StreamHandle stream = ready.driver.create_stream();
  ready.driver.occupy(stream, 1ms);
  const CUevent event = record(ready, stream);
  ready.driver.tick();
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  ready.driver.run_until_idle(stream);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
}

TEST(EventLag, SynchronisingOnAnyEventCompletesAllRecordedSoFar) {
  auto ready = make_lagging(100);
  const CUevent first = record(ready, ready.driver.create_stream());
  const CUevent second = record(ready, ready.driver.create_stream());
  EXPECT_EQ(ready.api.event_synchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(first), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 1u);
  const CUevent later = record(ready);
  EXPECT_EQ(ready.api.event_query(later), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(ready.api.event_record(first, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(first), CUDA_ERROR_NOT_READY);
}

TEST(EventLag, FreeingDeviceMemoryCompletesAllRecordedSoFar) {
  auto ready = make_lagging(100);
  const CUdeviceptr pointer = ready.allocate(1 * MiB);
  const CUdeviceptr other = ready.allocate(1 * MiB);
  const CUevent event = record(ready);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free(other), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 1u);  // the second found nothing to wait for
}

TEST(EventLag, SynchronisingAStreamOrTheDeviceDoesTheSame) {
  auto ready = make_lagging(100);
  const StreamHandle stream = ready.driver.create_stream();
  CUevent event = record(ready, stream);
  EXPECT_EQ(ready.api.stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  event = record(ready, stream);
  EXPECT_EQ(ready.api.ctx_synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.host_synchronizations(), 2u);
}

TEST(EventLag, OtherDevicesKeepTheirs) {
  auto ready = make_lagging(100);
  const CUdeviceptr pointer = ready.allocate(1 * MiB);
  ready.use(1);
  const CUevent elsewhere = record(ready);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(elsewhere), CUDA_ERROR_NOT_READY);
}

TEST(EventLag, ChangesForWhatIsRecordedFromNowOn) {
  auto ready = make_lagging(0);
  EXPECT_EQ(ready.api.event_query(record(ready)), CUDA_SUCCESS);
  ready.driver.set_event_lag(2);
  const CUevent event = record(ready);
  ready.driver.set_event_lag(0);
  EXPECT_EQ(ready.api.event_query(record(ready)), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.event_query(event), CUDA_ERROR_NOT_READY);
  ready.driver.tick();
  ready.driver.tick();
  EXPECT_EQ(ready.api.event_query(event), CUDA_SUCCESS);
}

TEST(EventLag, WorkThatWaitsOnTheDeviceDoesNotLag) {
  auto ready = make_lagging(100);
  const StreamHandle stream = ready.driver.create_stream();
  EXPECT_EQ(ready.api.stream_wait_event(stream, record(ready), 0), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.stream_query(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace cistern
