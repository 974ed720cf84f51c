// Number for number: what PyTorch 2.4's allocator counted on real traces, and what `classic` and
// `expandable` count on them under the same rules. One case for each recorded set-up.

#include <cistern/options.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/golden/shared_folder.h"
#include "tools/checkpoint_json.h"
#include "tools/replay.h"

namespace cistern {
namespace {

using nlohmann::json;

// What this process compared, said once at its end.
struct Totals : ::testing::Environment {
  static inline std::size_t set_ups = 0;
  static inline std::size_t checkpoints = 0;
  static inline std::size_t numbers = 0;
  static inline std::size_t equal = 0;
  void TearDown() override {
    if (set_ups > 0)
      std::cout << "golden: " << set_ups << " set-ups, " << checkpoints << " checkpoints, " << numbers
                << " numbers compared, " << equal << " equal\n";
  }
};
[[maybe_unused]] const auto* const kTotals = ::testing::AddGlobalTestEnvironment(new Totals);

std::vector<json> read_golden(const std::filesystem::path& path) {
  std::istringstream lines(read_gzip(path));
  std::vector<json> records;
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  return records;
}

// Their file names say which policy they are of.
std::vector<std::filesystem::path> set_ups_of(Policy policy) {
  std::vector<std::filesystem::path> files = shared_files("reference/golden", ".jsonl.gz");
  std::erase_if(files, [policy](const auto& file) {
    const bool is_expandable = file.filename().string().find("expandable") != std::string::npos;
    return is_expandable != (policy == Policy::expandable);
  });
  return files;
}

ReplaySettings settings_of(const json& set_up) {
  AllocatorOptions base = AllocatorOptions::parse("policy:classic");
  base.oom_dump = "off";
  ReplaySettings settings;
  settings.options = AllocatorOptions::parse("pytorch_rules:2.4," + set_up["alloc_conf"].get<std::string>(), base);
  if (!set_up["memory_fraction"].is_null()) settings.memory_fraction = set_up["memory_fraction"].get<double>();
  return settings;
}

SimulatedOptions device_of(const json& set_up) {
  SimulatedOptions options;
  options.capacity_bytes = set_up["capacity_bytes"];
  options.event_lag_ticks = set_up["event_lag_operations"];
  return options;
}

// The checkpoints of our own run, in the recorded form.
std::vector<json> replay(const json& set_up) {
  const std::string trace_name = set_up["trace"].get<std::string>() + ".trace.gz";
  const Trace trace = read_trace((shared_folder() / "traces" / trace_name).string());
  const auto device = make_simulated_replay_device(device_of(set_up));
  std::vector<json> checkpoints;
  replay_checkpoints(make_script(trace), *device, settings_of(set_up), 32,
                     [&](std::size_t ops, bool after_empty_cache, const MemoryStats& stats) {
                       if (after_empty_cache) checkpoints.push_back({{"empty_cache", true}});
                       checkpoints.push_back(json::parse(checkpoint_json(ops, stats).dump()));
                     });
  return checkpoints;
}

// Counts the numbers that one statistic has, and those that are equal.
void count_numbers(const json& expected, const json& ours) {
  if (!expected.is_array()) {
    ++Totals::numbers;
    Totals::equal += ours == expected ? 1 : 0;
    return;
  }
  for (std::size_t i = 0; i < expected.size(); ++i)
    count_numbers(expected[i], ours.is_array() && i < ours.size() ? ours[i] : json());
}

class Golden : public ::testing::TestWithParam<std::filesystem::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Golden);

TEST_P(Golden, EveryStatisticEqualsWhatPyTorchCounted) {
  const std::vector<json> recorded = read_golden(GetParam());
  const std::vector<json> ours = replay(recorded.front());

  ASSERT_EQ(ours.size() + 1, recorded.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const json& expected = recorded[i + 1];
    ASSERT_EQ(ours[i].contains("stats"), expected.contains("stats"));
    if (!expected.contains("stats")) continue;
    ASSERT_EQ(ours[i]["op"], expected["op"]);
    ++Totals::checkpoints;
    for (const auto& [key, value] : expected["stats"].items()) {
      const json counted = ours[i]["stats"].value(key, json());
      count_numbers(value, counted);
      ASSERT_EQ(counted, value) << key << " after " << expected["op"] << " operations";
    }
  }
  ++Totals::set_ups;
}

INSTANTIATE_TEST_SUITE_P(Classic, Golden, ::testing::ValuesIn(set_ups_of(Policy::classic)),
                         [](const auto& set_up) { return case_name(set_up.param); });
INSTANTIATE_TEST_SUITE_P(Expandable, Golden, ::testing::ValuesIn(set_ups_of(Policy::expandable)),
                         [](const auto& set_up) { return case_name(set_up.param); });

// Cases are listed when the tests are built: without the folder there are none, and that shows.
TEST(GoldenFolder, HasASetUpForEachCase) {
  const std::size_t classic = set_ups_of(Policy::classic).size();
  const std::size_t expandable = set_ups_of(Policy::expandable).size();
  if (classic + expandable == 0)
    GTEST_SKIP() << "all golden set-ups are skipped, 0 compared: there are none in "
                 << shared_folder() / "reference/golden"
                 << " (set CISTERN_SHARED)";
  std::cout << "golden: " << classic << " classic and " << expandable << " expandable set-ups\n";
  const auto cases_of = [](const std::string& suite) {
    const auto& tests = *::testing::UnitTest::GetInstance();
    for (int i = 0; i < tests.total_test_suite_count(); ++i)
      if (tests.GetTestSuite(i)->name() == suite)
        return static_cast<std::size_t>(tests.GetTestSuite(i)->total_test_count());
    return std::size_t{0};
  };
  EXPECT_EQ(cases_of("Classic/Golden"), classic);
  EXPECT_EQ(cases_of("Expandable/Golden"), expandable);
}

}  // namespace
}  // namespace cistern
