#include "tests/command/command_fixture.h"

namespace cistern {
namespace {

using CapacityCommandTest = CommandTest;

TEST_F(CapacityCommandTest, TheLeastCapacityIsWhatTheSegmentsNeed) {
  // 20 MiB at once, then 30 MiB: the first segment is given back for the second.
  const std::string trace = write("t.trace", "a 1 20971520 0\nf 1\na 2 31457280 0\nf 2\n");
  const Result result = run({"capacity", trace, "--policy", "classic", "--json"});
  ASSERT_EQ(result.status, kExitSuccess) << result.err;
  const nlohmann::json expected = {
      {"trace", "t.trace"},          {"policy", "classic"},          {"config", ""}, {"min_capacity_bytes", 30 << 20},
      {"peak_live_bytes", 30 << 20}, {"min_capacity_over_live", 1.0}};
  EXPECT_EQ(result.object(), expected);
}

TEST_F(CapacityCommandTest, TheResultCompletesAndTwoMebibytesLessDoNot) {
  // Three live blocks of 3 MiB keep a segment of 20 MiB; a block of 11 MiB needs its own of 12.
  const std::string trace =
      write("t.trace", "a 1 3145728 0\na 2 3145728 0\na 3 11534336 0\na 4 3145728 0\nf 1\nf 2\nf 3\nf 4\n");
  const std::uint64_t capacity = run({"capacity", trace, "--json"}).object()["min_capacity_bytes"];
  EXPECT_EQ(run({"replay", trace, "--capacity", std::to_string(capacity)}).status, kExitSuccess);
  EXPECT_EQ(run({"replay", trace, "--capacity", std::to_string(capacity - (2 << 20))}).status, kExitOutOfMemory);
}

TEST_F(CapacityCommandTest, TheCapacityDependsOnTheOptions) {
  std::string text;
  for (int i = 0; i < 4; ++i) text += "a " + std::to_string(i) + " 3000000 0\n";
  const std::string trace = write("t.trace", text);
  const std::uint64_t classic =
      run({"capacity", trace, "--policy", "classic", "--json"}).object()["min_capacity_bytes"];
  const std::uint64_t direct = run({"capacity", trace, "--policy", "direct", "--json"}).object()["min_capacity_bytes"];
  EXPECT_EQ(classic, 20U << 20);
  EXPECT_EQ(direct, 16U << 20);
}

TEST_F(CapacityCommandTest, ATraceWithoutMemoryNeedsNone) {
  const nlohmann::json result = run({"capacity", write("t.trace", "a 1 0 0\nf 1\n"), "--json"}).object();
  EXPECT_EQ(result["min_capacity_bytes"], 0);
  EXPECT_TRUE(result["min_capacity_over_live"].is_null());
}

TEST_F(CapacityCommandTest, WhatNoDeviceHoldsIsStatusOneAndNull) {
  const Result result = run({"capacity", write("t.trace", "a 1 1152921504606846976 0\nf 1\n"), "--json"});
  EXPECT_EQ(result.status, kExitOutOfMemory) << result.err;
  EXPECT_TRUE(result.object()["min_capacity_bytes"].is_null());
}

TEST_F(CapacityCommandTest, ATableForPeopleHasARowATrace) {
  const std::string trace = write("t.trace", "a 1 20971520 0\nf 1\n");
  const Result result = run({"capacity", trace, trace});
  EXPECT_EQ(result.status, kExitSuccess);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 4);
  EXPECT_NE(result.out.find("20.00 MiB"), std::string::npos);
}

}  // namespace
}  // namespace cistern
