#include "runtime/call_meter.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/simulated/driver_fixture.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using cistern::testing::MiB;
using cistern::testing::ReadyDriver;

TEST(CallMeter, CountsEachEntryOfTheSimulatedDriver) {
  ReadyDriver ready;
  const std::uint64_t before = ready.driver.calls();
  const CUdeviceptr pointer = ready.allocate(512);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(ready.api.mem_free(pointer), CUDA_ERROR_INVALID_VALUE);  // a refused call is a call
  EXPECT_EQ(ready.driver.calls(), before + 3);
  EXPECT_EQ(ready.driver.calls("cuMemFree"), 2u);
  const auto by_name = ready.driver.calls_by_name();
  EXPECT_EQ(by_name.size(), kDriverEntryCount);
  EXPECT_EQ(by_name.at("cuMemAlloc"), 1u);
  EXPECT_EQ(by_name.at("cuMemMap"), 0u);
}

TEST(CallMeter, ControlsAreNoDriverCalls) {
  ReadyDriver ready;
  const std::uint64_t before = ready.driver.calls();
  ready.driver.occupy(ready.driver.create_stream(), 1ms);
  ready.driver.run_until_idle();
  EXPECT_EQ(ready.driver.calls(), before);
  EXPECT_EQ(ready.driver.host_synchronizations(), 0u);
}

TEST(CallMeter, CostIsAccountedByEntry) {
  CallMeter meter;
  meter.set_cost(DriverEntryId::mem_alloc, 100us);
  meter.set_cost(DriverEntryId::event_query, 400ns);
  meter.set_cost(DriverEntryId::ctx_set_current, 0ns);
  meter.count(DriverEntryId::mem_alloc);
  meter.count(DriverEntryId::mem_alloc);
  meter.count(DriverEntryId::event_query);
  meter.count(DriverEntryId::ctx_set_current);
  EXPECT_EQ(meter.modelled_cost(), 2 * 100us + 400ns);
  meter.set_cost(DriverEntryId::event_query, 7us);
  meter.set_cost(DriverEntryId::mem_alloc, 0ns);
  EXPECT_EQ(meter.modelled_cost(), 7us);
}

TEST(CallMeter, CountsOfThreadsAreAllThere) {
  constexpr std::uint64_t kCalls = 200000;
  CallMeter meter;
  meter.set_cost(DriverEntryId::event_query, 400ns);
  const auto work = [&] {
    for (std::uint64_t i = 0; i < kCalls; ++i) meter.count(DriverEntryId::event_query);
  };
  meter.count(DriverEntryId::event_query);
  std::thread one(work);
  std::thread other(work);
  work();
  one.join();
  other.join();
  EXPECT_EQ(meter.calls(DriverEntryId::event_query), 3 * kCalls + 1);
  EXPECT_EQ(meter.calls(), 3 * kCalls + 1);
  EXPECT_EQ(meter.modelled_cost(), (3 * kCalls + 1) * 400ns);
}

TEST(CallMeter, EntriesAreFoundByTheDriversNames) {
  EXPECT_EQ(find_driver_entry("cuMemAlloc"), DriverEntryId::mem_alloc);
  EXPECT_EQ(find_driver_entry("cuMemAlloc_v2"), std::nullopt);
  EXPECT_EQ(find_driver_entry(""), std::nullopt);
}

TEST(CallMeter, CostsAreThoseOnFile) {
  std::ifstream file(CISTERN_SOURCE_DIR "/bench/costs.json");
  const auto costs = nlohmann::json::parse(file);
  EXPECT_FALSE(costs.at("source").get<std::string>().empty());
  for (std::size_t i = 0; i < kDriverEntryCount; ++i) {
    CallMeter meter;
    meter.count(static_cast<DriverEntryId>(i));
    EXPECT_EQ(meter.modelled_cost().count(), costs.at("ns").value(kDriverEntryNames[i], std::int64_t{0}))
        << kDriverEntryNames[i];
  }
  for (const auto& [name, cost] : costs.at("ns").items()) {
    EXPECT_TRUE(find_driver_entry(name).has_value()) << name;
    EXPECT_GE(cost.get<std::int64_t>(), 0) << name;
  }
}

TEST(MeteredDriver, CountsWhatItPassesOn) {
  ReadyDriver ready;
  CallMeter meter;
  const MeteredDriver metered(ready.api, meter);
  const std::uint64_t inner_before = ready.driver.calls();
  CUdeviceptr pointer = 0;
  EXPECT_EQ(metered.api().mem_alloc(&pointer, 4 * MiB), CUDA_SUCCESS);
  EXPECT_EQ(ready.driver.used_bytes(), 4 * MiB);
  EXPECT_EQ(metered.api().mem_free(pointer + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(metered.api().mem_free(pointer), CUDA_SUCCESS);
  EXPECT_EQ(meter.calls(), 3u);
  EXPECT_EQ(meter.calls(DriverEntryId::mem_free), 2u);
  EXPECT_EQ(ready.driver.calls(), inner_before + 3);
  EXPECT_EQ(SimulatedDriver::behind(metered.api()), nullptr);
}

TEST(MeteredDriver, CountsWaitsForStreamsAndEventsThatAreBusy) {
  ReadyDriver ready;
  CallMeter meter;
  const MeteredDriver metered(ready.api, meter);
  const StreamHandle stream = ready.driver.create_stream();
  const CUevent event = ready.create_event();
  EXPECT_EQ(metered.api().stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(meter.host_synchronizations(), 0u);
  ready.driver.occupy(stream, 1ms);
  EXPECT_EQ(metered.api().stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(meter.host_synchronizations(), 1u);
  ready.driver.occupy(stream, 1ms);
  EXPECT_EQ(metered.api().event_record(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(metered.api().event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(metered.api().event_synchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(meter.host_synchronizations(), 2u);
}

TEST(MeteredDriver, WhatTheDriverLacksStaysAbsent) {
  ReadyDriver ready;
  DriverApi old_driver = ready.api;
  old_driver.mem_create = {};
  CallMeter meter;
  const MeteredDriver metered(old_driver, meter);
  EXPECT_FALSE(metered.api().mem_create);
  EXPECT_TRUE(metered.api().mem_alloc);
}

}  // namespace
}  // namespace cistern
