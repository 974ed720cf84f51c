// Number for number: what PyTorch 2.4's allocator counted on real traces, and what `classic`
// counts on them under the same rules. One case for each recorded set-up.

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
  static inline std::size_t numbers = 0;
  void TearDown() override {
    if (set_ups > 0) std::cout << "golden: " << set_ups << " set-ups, " << numbers << " numbers compared\n";
  }
};
[[maybe_unused]] const auto* const kTotals = ::testing::AddGlobalTestEnvironment(new Totals);

std::vector<json> read_golden(const std::filesystem::path& path) {
  std::istringstream lines(read_gzip(path));
  std::vector<json> records;
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  return records;
}

bool is_classic(const std::filesystem::path& path) {
  return path.filename().string().find("expandable") == std::string::npos;
}

std::vector<std::filesystem::path> classic_set_ups() {
  std::vector<std::filesystem::path> files = shared_files("reference/golden", ".jsonl.gz");
  std::erase_if(files, [](const auto& file) { return !is_classic(file); });
  return files;
}

ReplaySettings settings_of(const json& set_up) {
  AllocatorOptions base;
  base.oom_dump = "off";
  ReplaySettings settings;
  settings.options =
      AllocatorOptions::parse("policy:classic,pytorch_rules:2.4," + set_up["alloc_conf"].get<std::string>(), base);
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

std::size_t count_numbers(const json& stats) {
  std::size_t numbers = 0;
  for (const json& value : stats) numbers += value.is_array() ? value.size() : 1;
  return numbers;
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
    for (const auto& [key, value] : expected["stats"].items())
      ASSERT_EQ(ours[i]["stats"].value(key, json()), value) << key << " after " << expected["op"] << " operations";
    Totals::numbers += count_numbers(expected["stats"]);
  }
  ++Totals::set_ups;
}

INSTANTIATE_TEST_SUITE_P(Classic, Golden, ::testing::ValuesIn(classic_set_ups()),
                         [](const auto& set_up) { return case_name(set_up.param); });

// Cases are listed when the tests are built: without the folder there are none, and that shows.
TEST(GoldenFolder, HasAClassicSetUpForEachCase) {
  const std::size_t set_ups = classic_set_ups().size();
  if (set_ups == 0)
    GTEST_SKIP() << "all golden set-ups are skipped, 0 compared: there are none in "
                 << shared_folder() / "reference/golden"
                 << " (set CISTERN_SHARED)";
  std::cout << "golden: " << set_ups << " classic set-ups\n";
  const auto* suite = [] {
    const auto& tests = *::testing::UnitTest::GetInstance();
    for (int i = 0; i < tests.total_test_suite_count(); ++i)
      if (std::string(tests.GetTestSuite(i)->name()) == "Classic/Golden") return tests.GetTestSuite(i);
    return static_cast<const ::testing::TestSuite*>(nullptr);
  }();
  ASSERT_NE(suite, nullptr);
  EXPECT_EQ(static_cast<std::size_t>(suite->total_test_count()), set_ups);
}

}  // namespace
}  // namespace cistern
