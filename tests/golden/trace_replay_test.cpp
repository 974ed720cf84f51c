// Every trace of the shared folder replays, and is as large as its own text says.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <unordered_map>

#include "tests/golden/shared_folder.h"
#include "tools/capacity.h"
#include "tools/replay.h"

namespace cistern {
namespace {

std::uint64_t peak_live_bytes_of(const std::string& text) {
  std::unordered_map<std::string, std::uint64_t> live;
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
  std::istringstream lines(text);
  for (std::string line, kind, id; std::getline(lines, line);) {
    std::istringstream fields(line);
    fields >> kind >> id;
    if (kind == "a") fields >> live[id], now += live[id];
    if (kind == "f") now -= live[id], live.erase(id);
    peak = std::max(peak, now);
  }
  return peak;
}

class SharedTrace : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  Trace trace = read_trace(GetParam().string());
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedTrace);

TEST_P(SharedTrace, ReplaysWithinTheDeviceAndAboveItsPeakOfLiveBytes) {
  const ReplayScript script = make_script(trace);
  EXPECT_EQ(script.peak_live_bytes, peak_live_bytes_of(read_gzip(GetParam())));
  EXPECT_EQ(script.peak_live_bytes, trace.peak_live_bytes);
  EXPECT_EQ(script.ops, trace.requests());
  EXPECT_EQ(script.steps, trace.steps);

  const auto device = make_simulated_replay_device({});
  ReplaySettings settings;
  settings.options.oom_dump = "off";
  const ReplayFigures figures = measure_replay(script, *device, settings);
  EXPECT_EQ(figures.ooms, 0);
  EXPECT_GE(figures.peak_reserved_bytes, script.peak_live_bytes);
  EXPECT_LE(figures.peak_reserved_bytes, device->capacity_bytes());
}

TEST_P(SharedTrace, CompletesAtItsLeastCapacityAndNotBelow) {
  const ReplayScript script = make_script(trace);
  AllocatorOptions options;
  options.oom_dump = "off";
  const auto capacity = find_least_capacity(script, options);
  ASSERT_TRUE(capacity.has_value());
  EXPECT_GE(*capacity, script.peak_live_bytes);
  EXPECT_TRUE(completes(script, *capacity, options));
  EXPECT_FALSE(completes(script, *capacity - kCapacityStep, options));
}

INSTANTIATE_TEST_SUITE_P(Traces, SharedTrace, ::testing::ValuesIn(shared_files("traces", ".trace.gz")),
                         [](const auto& trace) { return case_name(trace.param); });

TEST(TraceFolder, IsThere) {
  const auto traces = shared_files("traces", ".trace.gz");
  if (traces.empty())
    GTEST_SKIP() << "all shared traces are skipped, 0 replayed: there are none in " << shared_folder() / "traces"
                 << " (set CISTERN_SHARED)";
  EXPECT_FALSE(traces.empty());
}

}  // namespace
}  // namespace cistern
