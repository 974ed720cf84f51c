#include <fmt/format.h>
#include <cstdlib>
#include <optional>
#include <set>

#include "tests/command/command_fixture.h"

namespace cistern {
namespace {

constexpr const char* kTwoSteps =
    "# two blocks a step; the second is also used on stream 3\n"
    "a 1 1000 0\n"
    "a 2 3000000 3\n"
    "r 2 0\n"
    "f 2\n"
    "i\n"
    "a 3 500 0\n"
    "f 1\n"
    "f 3\n"
    "i\n";

// Sets a variable, and gives back what it was.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~EnvironmentVariable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class ReplayCommandTest : public CommandTest {
 protected:
  std::string two_steps = write("two-steps.trace", kTwoSteps);
};

TEST_F(ReplayCommandTest, JsonIsOneObjectATraceWithTheNamesOfTheContract) {
  const Result result = run({"replay", two_steps, two_steps, "--json"});
  ASSERT_EQ(result.status, kExitSuccess) << result.err;
  ASSERT_EQ(result.objects().size(), 2U);
  std::set<std::string> names;
  const nlohmann::json object = result.object();
  for (const auto& [name, value] : object.items()) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"trace", "policy", "config", "ops", "steps", "device", "peak_live_bytes",
                                          "peak_reserved_bytes", "peak_reserved_over_live", "driver_calls",
                                          "repeat_driver_calls", "host_synchronizations", "modelled_driver_ms",
                                          "ns_per_op", "retries", "ooms"}));
}

TEST_F(ReplayCommandTest, FiguresAreWhatTheTraceAndTheRulesSay) {
  const nlohmann::json figures = run({"replay", two_steps, "--policy", "classic", "--json"}).object();
  EXPECT_EQ(figures["trace"], "two-steps.trace");
  EXPECT_EQ(figures["policy"], "classic");
  EXPECT_EQ(figures["config"], "");
  EXPECT_EQ(figures["device"], "simulated");
  EXPECT_EQ(figures["ops"], 7);
  EXPECT_EQ(figures["steps"], 2);
  EXPECT_EQ(figures["peak_live_bytes"], 3001000);
  // A small segment of 2 MiB for stream 0, a large one of 20 MiB for stream 3.
  EXPECT_EQ(figures["peak_reserved_bytes"], 22 << 20);
  EXPECT_DOUBLE_EQ(figures["peak_reserved_over_live"], double(22 << 20) / 3001000);
  EXPECT_EQ(figures["driver_calls"]["cuMemAlloc"], 2);
  EXPECT_EQ(figures["driver_calls"]["cuMemFree"], 0);
  EXPECT_EQ(figures["driver_calls"]["cuEventRecord"], 1);
  EXPECT_EQ(figures["repeat_driver_calls"], 0);
  EXPECT_EQ(figures["host_synchronizations"], 0);
  EXPECT_GT(figures["modelled_driver_ms"], 0.0);
  EXPECT_GT(figures["ns_per_op"], 0.0);
  EXPECT_EQ(figures["retries"], 0);
  EXPECT_EQ(figures["ooms"], 0);
}

TEST_F(ReplayCommandTest, StepsCutTheTraceAfterTheFirstOnes) {
  const nlohmann::json figures = run({"replay", two_steps, "--json", "--steps", "1"}).object();
  EXPECT_EQ(figures["ops"], 4);
  EXPECT_EQ(figures["steps"], 1);
  EXPECT_EQ(run({"replay", two_steps, "--json", "--steps", "9"}).object()["ops"], 7);
}

TEST_F(ReplayCommandTest, RunningOutOfMemoryIsStatusOneAndTheRunGoesOn) {
  // Block 1 does not fit; its record and free are skipped, block 2 is served.
  const std::string trace = write("large.trace", "a 1 67108864 0\nr 1 1\na 2 4096 0\nf 1\nf 2\n");
  const Result result = run({"replay", trace, "--policy", "classic", "--capacity", "32MiB", "--json"});
  EXPECT_EQ(result.status, kExitOutOfMemory);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.object()["ooms"], 1);
  EXPECT_EQ(result.object()["retries"], 1);
  EXPECT_EQ(result.object()["peak_live_bytes"], 67108864 + 4096);
  EXPECT_EQ(result.object()["peak_reserved_bytes"], 2 << 20);
}

// As PyTorch's, the statistics do not count what is more than any device could have.
TEST_F(ReplayCommandTest, ARequestThatNoDeviceCouldServeIsRefusedAsAnyOther) {
  const std::string trace = write("huge.trace", "a 1 2305843009213693952 0\nf 1\na 2 4096 0\nf 2\n");
  const Result result = run({"replay", trace, "--json"});
  EXPECT_EQ(result.status, kExitOutOfMemory);
  EXPECT_EQ(result.object()["ooms"], 1);
  EXPECT_EQ(run({"replay", trace, "--stats-checkpoints", "1"}).status, kExitOutOfMemory);
}

TEST_F(ReplayCommandTest, TheMemoryFractionIsSetBeforeTheFirstAllocation) {
  const std::string trace = write("large.trace", "a 1 67108864 0\nf 1\n");
  EXPECT_EQ(run({"replay", trace, "--capacity", "128MiB"}).status, kExitSuccess);
  EXPECT_EQ(run({"replay", trace, "--capacity", "128MiB", "--memory-fraction", "0.25"}).status, kExitOutOfMemory);
}

TEST_F(ReplayCommandTest, ATableForPeopleHasARowATrace) {
  const Result result = run({"replay", two_steps, two_steps, two_steps});
  EXPECT_EQ(result.status, kExitSuccess);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 5);  // the device, the titles, three rows
  EXPECT_EQ(result.err, "");                           // no progress where no terminal is
  // The columns are aligned: every row is as wide as the titles.
  std::istringstream lines(result.out);
  std::set<std::size_t> widths;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) widths.insert(line.size());
  EXPECT_EQ(widths.size(), 1U) << result.out;
}

TEST_F(ReplayCommandTest, TheSeedChoosesWhichSizesArePerturbed) {
  // A block that does not fit costs one call, one that is a sixteenth smaller does fit and costs two.
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a 1 67108864 0\nf 1\n";
  const std::string trace = write("large.trace", text);
  const auto calls = [&](const std::string& share, const std::string& seed) {
    return run({"replay", trace, "--json", "--policy", "direct", "--capacity", "62MiB", "--perturb", share, "--seed",
                seed})
        .object()["repeat_driver_calls"]
        .get<int>();
  };
  EXPECT_EQ(calls("0", "1"), 100);
  EXPECT_EQ(calls("1", "1"), 200);
  EXPECT_EQ(calls("0.5", "1"), calls("0.5", "1"));
  EXPECT_NE(calls("0.5", "1"), calls("0.5", "2"));
  EXPECT_GT(calls("0.5", "1"), 130);
  EXPECT_LT(calls("0.5", "1"), 170);
}

TEST_F(ReplayCommandTest, ABadTraceIsRefusedBeforeAnyOtherIsReplayed) {
  const std::string bad = write("bad.trace", "a 1 512 0\na 1 512 0\n");
  expect_refused(run({"replay", two_steps, bad, "--json"}), {"bad.trace", "2", "a 1 512 0", "expected"});
}

TEST_F(ReplayCommandTest, AnUnknownPolicyAndABadOptionAreRefusedByName) {
  expect_refused(run({"replay", two_steps, "--policy", "nonsense"}), {"nonsense"});
  expect_refused(run({"replay", two_steps, "--config", "max_split_size:64"}), {"max_split_size"});
  expect_refused(run({"replay", two_steps, "--config", "garbage_collection_threshold:7"}),
                 {"garbage_collection_threshold", "7"});
}

TEST_F(ReplayCommandTest, PolicyAndConfigAreShownAsTheyWereInForce) {
  const nlohmann::json figures =
      run({"replay", two_steps, "--json", "--policy", "direct", "--config", "oom_dump:off"}).object();
  EXPECT_EQ(figures["policy"], "direct");
  EXPECT_EQ(figures["config"], "oom_dump:off");
  EXPECT_EQ(figures["repeat_driver_calls"], 6);
}

TEST_F(ReplayCommandTest, PoliciesAreComparedSideBySide) {
  const Result result = run({"replay", two_steps, "--compare", "--json"});
  EXPECT_EQ(result.status, kExitSuccess) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  std::vector<std::string> policies;
  std::vector<std::uint64_t> reserved;
  while (std::getline(lines, line)) {
    const auto figures = nlohmann::json::parse(line);
    policies.push_back(figures["policy"]);
    reserved.push_back(figures["peak_reserved_bytes"]);
  }
  EXPECT_EQ(policies, (std::vector<std::string>{"classic", "expandable", "paged", "async", "direct"}));
  ASSERT_EQ(reserved.size(), 5U);
  EXPECT_EQ(reserved[0], 22U << 20);
  EXPECT_LT(reserved[2], reserved[0]) << "paged is replayed as paged";
  EXPECT_EQ(std::ranges::count(run({"replay", two_steps, "--compare"}).out, '\n'),
            7);  // the device, the titles, five rows
  expect_refused(run({"replay", two_steps, "--compare", "--policy", "paged"}), {"--compare", "--policy"});
  for (const char* choice : {"policy:paged", "policy:direct", "expandable_segments:True", "backend:cudaMallocAsync"})
    expect_refused(run({"replay", two_steps, "--compare", "--config", choice}), {"--compare with --config", choice});
  expect_refused(run({"replay", two_steps, "--compare", "--stats-checkpoints", "2"}), {"--compare"});
}

TEST_F(ReplayCommandTest, APolicyThatTheConfigContradictsIsRefused) {
  expect_refused(run({"replay", two_steps, "--policy", "classic", "--config", "oom_dump:off,policy:direct"}),
                 {"--policy 'classic'", "--config 'oom_dump:off,policy:direct'", "direct"});
  expect_refused(run({"replay", two_steps, "--policy", "direct", "--config", "policy:classic"}),
                 {"--policy 'direct'", "--config 'policy:classic'"});
  expect_refused(run({"capacity", two_steps, "--policy", "classic", "--config", "policy:direct"}),
                 {"--policy 'classic'", "--config 'policy:direct'"});
  expect_refused(run({"replay", two_steps, "--policy", "classic,policy:direct"}), {"--policy 'classic,policy:direct'"});
  EXPECT_EQ(run({"replay", two_steps, "--policy", "direct", "--config", "policy:direct", "--json"}).object()["policy"],
            "direct");
}

TEST_F(ReplayCommandTest, AMemoryFractionThatTheConfigContradictsIsRefused) {
  expect_refused(run({"replay", two_steps, "--memory-fraction", "0.5", "--config", "per_process_memory_fraction:0.25"}),
                 {"--memory-fraction 0.5", "--config 'per_process_memory_fraction:0.25'"});
  EXPECT_EQ(
      run({"replay", two_steps, "--memory-fraction", "0.5", "--config", "per_process_memory_fraction:0.5"}).status,
      kExitSuccess);
}

TEST_F(ReplayCommandTest, SummariesDoNotGoBetweenTheJson) {
  const std::string trace = write("large.trace", "a 1 67108864 0\nf 1\n");
  const Arguments replay = {"replay", trace, "--capacity", "32MiB", "--config", "oom_dump:stdout"};
  const auto with = [&](const Arguments& more) {
    Arguments all = replay;
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  expect_refused(with({"--json"}), {"--json", "oom_dump:stdout"});
  expect_refused(with({"--stats-checkpoints", "2"}), {"--stats-checkpoints", "oom_dump:stdout"});
  expect_refused(run({"capacity", trace, "--json", "--config", "oom_dump:stdout"}), {"--json", "oom_dump:stdout"});
}

TEST_F(ReplayCommandTest, NamesAndOptionsThatAreNotUtf8AreShownWithReplacements) {
  const std::string trace = write("b\xff.trace", kTwoSteps);
  const Arguments config = {"--config", "oom_dump:" + path("no\xfe"), "--json"};
  for (const char* subcommand : {"replay", "capacity"}) {
    Arguments arguments = {subcommand, trace};
    arguments.insert(arguments.end(), config.begin(), config.end());
    const Result result = run(arguments);
    ASSERT_EQ(result.status, kExitSuccess) << result.err;
    EXPECT_EQ(result.object()["trace"], "b\uFFFD.trace");
    EXPECT_TRUE(result.object()["config"].get<std::string>().ends_with("no\uFFFD"));
  }
}

TEST_F(ReplayCommandTest, CheckpointsComeAtTheirIntervalAfterTheLastAndAfterEmptyCache) {
  const Result result = run({"replay", two_steps, "--policy", "classic", "--stats-checkpoints", "3"});
  ASSERT_EQ(result.status, kExitSuccess) << result.err;
  const auto lines = result.objects();
  ASSERT_EQ(lines.size(), 6U);  // 7 operations: 2, 4, 6, 7, the mark, 7
  EXPECT_EQ(lines[0]["op"], 2);
  EXPECT_EQ(lines[2]["op"], 6);
  EXPECT_EQ(lines[3]["op"], 7);
  EXPECT_EQ(lines[4], nlohmann::json({{"empty_cache", true}}));
  EXPECT_EQ(lines[5]["op"], 7);
  EXPECT_EQ(lines[0]["stats"]["allocation.all"], nlohmann::json({2, 2, 2, 0}));
  EXPECT_EQ(lines[3]["stats"]["segment.all"], nlohmann::json({2, 2, 2, 0}));
  EXPECT_EQ(lines[5]["stats"]["segment.all"], nlohmann::json({0, 2, 2, 2}));
  EXPECT_EQ(lines[5]["stats"]["num_device_free"], 2);
  EXPECT_EQ(lines[5]["stats"].size(), 9U * 3 + 2 + 6);
}

TEST_F(ReplayCommandTest, CheckpointsAreOfOneTrace) {
  expect_refused(run({"replay", two_steps, two_steps, "--stats-checkpoints", "3"}),
                 {"--stats-checkpoints", "expected one"});
}

TEST_F(ReplayCommandTest, EventLagKeepsBlocksPendingForThatManyOperations) {
  // Block 1 was used on stream 1; two operations after its free its event is complete.
  const std::string trace =
      write("lag.trace", "a 1 512 0\nr 1 1\nf 1\na 2 512 0\na 3 512 0\na 4 512 0\nf 2\nf 3\nf 4\n");
  const auto active_after = [&](const std::string& lag) {
    std::vector<std::int64_t> active;
    for (const auto& line :
         run({"replay", trace, "--config", "stream_hand_over:done", "--stats-checkpoints", "9", "--event-lag", lag})
             .objects())
      if (line.contains("stats")) active.push_back(line["stats"]["active.all"][0]);
    return active;
  };
  EXPECT_EQ(active_after("0"), (std::vector<std::int64_t>{1, 1, 1, 1, 2, 3, 2, 1, 0, 0}));
  EXPECT_EQ(active_after("3"), (std::vector<std::int64_t>{1, 1, 1, 2, 3, 3, 2, 1, 0, 0}));
}

// Steps of 20 sizes whose blocks stream 1 uses, too: each asks while those of the step before are pending.
std::string waiting_steps(int steps) {
  constexpr int kMiB[] = {2, 16, 1, 4, 32, 8, 1, 2, 16, 4, 1, 32, 8, 2, 4, 16, 1, 8, 2, 32};
  std::string text;
  for (int step = 0; step < steps; ++step)
    for (int i = 0; i < 20; ++i)
      text += fmt::format("a {0} {1} 0\nr {0} 1\nf {0}\n", i, kMiB[i] * (1 << 20) + 512 * (i * 37 % 512));
  return text;
}

TEST_F(ReplayCommandTest, StepsThatWaitForOtherStreamsComeToRest) {
  const std::string trace = write("waiting.trace", waiting_steps(2000));
  const auto replay = run({"replay", trace, "--policy", "paged", "--json", "--event-lag", "32"}).objects();
  ASSERT_EQ(replay.size(), 1U);
  EXPECT_EQ(replay[0]["repeat_driver_calls"], 0);
  EXPECT_EQ(replay[0]["driver_calls"]["cuMemUnmap"], 0) << "before their mappings are so many that they retire";
}

// The device has less than they would take for it: it is asked for that once in a while, not with each miss.
TEST_F(ReplayCommandTest, StepsThatWaitAreServedWhereTheDeviceHasNoRoomForThem) {
  const std::string trace = write("waiting.trace", waiting_steps(1000));
  const std::string most = std::to_string(run({"replay", trace, "--policy", "paged", "--json", "--event-lag", "64"})
                                              .objects()[0]["peak_reserved_bytes"]
                                              .get<std::int64_t>() *
                                          95 / 100);
  const auto replay =
      run({"replay", trace, "--policy", "paged", "--json", "--event-lag", "64", "--capacity", most}).objects();
  EXPECT_EQ(replay[0]["ooms"], 0);
  EXPECT_LT(replay[0]["driver_calls"]["cuMemCreate"], 400);
}

TEST_F(ReplayCommandTest, SettingsOfTheSimulatedDeviceAreRefusedOnARealOne) {
  // Where there is no real device, that is what is said; either way nothing is replayed.
  const EnvironmentVariable device("CISTERN_DEVICE", "cuda");
  expect_refused(run({"replay", two_steps, "--event-lag", "1"}), {});
}

TEST_F(ReplayCommandTest, ABadDeviceSettingIsRefusedWithTheVariablesName) {
  for (const char* bad : {"simulated:capacity=much", "simulated:much", "simulatedmuch", "much"}) {
    const EnvironmentVariable device("CISTERN_DEVICE", bad);
    expect_refused(run({"replay", two_steps}), {"CISTERN_DEVICE", "much"});
  }
}

TEST_F(ReplayCommandTest, TheSimulatedDeviceIsTheVisibleOne) {
  const EnvironmentVariable device("CISTERN_DEVICE", "simulated:devices=2");
  {
    const EnvironmentVariable visible("CUDA_VISIBLE_DEVICES", "");
    expect_refused(run({"replay", two_steps, "--policy", "classic"}), {"CUDA_VISIBLE_DEVICES"});
  }
  const EnvironmentVariable visible("CUDA_VISIBLE_DEVICES", "1");
  const Result result = run({"replay", two_steps, "--policy", "classic", "--json"});
  ASSERT_EQ(result.status, kExitSuccess) << result.err;
  EXPECT_EQ(result.object()["peak_reserved_bytes"], 22 << 20);
}

TEST_F(ReplayCommandTest, AnEmptyTraceHasNoRatioAndNoErrors) {
  const Result result = run({"replay", write("empty.trace", "# nothing\na 1 0 0\nf 1\n"), "--json"});
  ASSERT_EQ(result.status, kExitSuccess) << result.err;
  EXPECT_TRUE(result.object()["peak_reserved_over_live"].is_null());
  EXPECT_EQ(result.object()["ops"], 2);
  EXPECT_EQ(result.object()["driver_calls"]["cuMemAlloc"], 0);
}

}  // namespace
}  // namespace cistern
