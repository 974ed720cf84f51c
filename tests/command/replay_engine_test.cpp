#include "tools/replay.h"

#include <cistern/error.h>
#include <gtest/gtest.h>

#include "runtime/context.h"
#include "runtime/process_driver.h"

namespace cistern {
namespace {

ReplaySettings quiet() {
  ReplaySettings settings;
  settings.options = AllocatorOptions::parse("policy:classic,oom_dump:off");
  return settings;
}

TEST(ReplayEngine, WhatAPassLeavesLiveIsFreedBeforeTheNext) {
  // Leaves 64 MiB behind: on 100 MiB a second pass only fits when that is given back.
  const Trace trace = parse_trace("a 1 67108864 0\n", "leaves.trace");
  SimulatedOptions options;
  options.capacity_bytes = 100 << 20;
  const auto device = make_simulated_replay_device(options);
  const ReplayFigures figures = measure_replay(make_script(trace), *device, quiet());
  EXPECT_EQ(figures.ooms, 0);
  EXPECT_EQ(figures.repeat_driver_calls, 0U);
  EXPECT_EQ(figures.peak_reserved_bytes, 64U << 20);
}

TEST(ReplayEngine, AScriptOfFewerStepsEndsWithThem) {
  const Trace trace = parse_trace("a 1 100 0\ni\na 2 200 2\nf 1\ni\nf 2\n", "steps.trace");
  const ReplayScript whole = make_script(trace);
  EXPECT_EQ(whole.ops, 4U);
  EXPECT_EQ(whole.steps, 2U);
  EXPECT_EQ(whole.peak_live_bytes, 300U);
  const ReplayScript first = make_script(trace, 1);
  EXPECT_EQ(first.ops, 1U);
  EXPECT_EQ(first.steps, 1U);
  EXPECT_EQ(first.peak_live_bytes, 100U);
}

TEST(ReplayEngine, ProgressNamesEachPassAndNeverExceedsTheWhole) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "a 1 512 0\nf 1\n";
  const Trace trace = parse_trace(text, "long.trace");
  const auto device = make_simulated_replay_device({});
  std::vector<std::string> phases;
  (void)measure_replay(make_script(trace), *device, quiet(), [&](std::string_view phase, double share) {
    EXPECT_GE(share, 0.0);
    if (phases.empty() || phases.back() != phase) phases.emplace_back(phase);
  });
  EXPECT_EQ(phases, (std::vector<std::string>{"first pass", "second pass", "third pass", "timing"}));
}

TEST(ReplayEngine, EveryFailureOfTheDriverButOutOfMemoryEndsTheReplay) {
  const Trace trace = parse_trace("a 1 512 0\nf 1\n", "one.trace");
  const auto device = make_simulated_replay_device({});
  SimulatedDriver::behind(device->api())->fail_call("cuMemAlloc", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_THROW((void)measure_replay(make_script(trace), *device, quiet()), DriverError);
}

// The way to a real device, over the process's driver: the same figures as from the simulated
// driver's own counts, although here they come from the meter and from cuMemGetInfo.
TEST(ReplayEngine, TheProcesssDeviceIsMeasuredFromOutside) {
  const Trace trace = parse_trace(
      "a 1 3000000 0\na 2 67108864 4\nr 1 4\nf 1\na 3 100 0\nf 2\na 4 33554432 4\nf 3\nf 4\n", "mixed.trace");
  const ReplayScript script = make_script(trace);
  const auto own = make_simulated_replay_device({});
  const auto process = make_process_replay_device();
  ASSERT_TRUE(own->is_simulated());
  ASSERT_FALSE(process->is_simulated());
  const ReplayFigures expected = measure_replay(script, *own, quiet());
  const ReplayFigures figures = measure_replay(script, *process, quiet());

  EXPECT_EQ(figures.peak_reserved_bytes, expected.peak_reserved_bytes);
  EXPECT_EQ(figures.driver.calls, expected.driver.calls);
  EXPECT_EQ(figures.driver.host_synchronizations, expected.driver.host_synchronizations);
  EXPECT_DOUBLE_EQ(figures.driver.modelled_ms, expected.driver.modelled_ms);
  EXPECT_EQ(figures.repeat_driver_calls, expected.repeat_driver_calls);
  EXPECT_EQ(figures.ooms, 0);
  EXPECT_GT(figures.ns_per_op, 0.0);
  EXPECT_FALSE(process->name().empty());
  EXPECT_GT(process->capacity_bytes(), 0U);
}

TEST(ReplayEngine, WhatWasHeldBeforeTheReplayIsNotItsPeak) {
  const Trace trace = parse_trace("a 1 3000000 0\nf 1\n", "one.trace");
  const auto device = make_process_replay_device();
  // Through the watched table, as the driver would take memory for streams or a context.
  const ContextGuard context(process_driver(), process_contexts().primary(0));
  CUdeviceptr before = 0;
  ASSERT_EQ(device->api().mem_alloc(&before, 64 << 20), CUDA_SUCCESS);
  const ReplayFigures figures = measure_replay(make_script(trace), *device, quiet());
  EXPECT_EQ(figures.peak_reserved_bytes, 20U << 20);
  EXPECT_EQ(device->api().mem_free(before), CUDA_SUCCESS);
}

TEST(ReplayEngine, CheckpointsTellTheirProgress) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "a 1 512 0\nf 1\n";
  const Trace trace = parse_trace(text, "long.trace");
  const auto device = make_simulated_replay_device({});
  std::vector<double> shares;
  std::size_t checkpoints = 0;
  replay_checkpoints(
      make_script(trace), *device, quiet(), 4, [&](std::size_t, bool, const MemoryStats&) { ++checkpoints; },
      [&](std::string_view phase, double share) {
        EXPECT_EQ(phase, "replaying");
        shares.push_back(share);
      });
  EXPECT_EQ(checkpoints, 5U);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_LT(0.0, shares[0]);
  EXPECT_LT(shares[0], shares[1]);
  EXPECT_LT(shares[1], 1.0);
}

}  // namespace
}  // namespace cistern
