#include "tests/command/command_fixture.h"

namespace cistern {
namespace {

using UsageTest = CommandTest;

TEST_F(UsageTest, HelpOfTheCommandAndOfEachSubcommandGoesToStandardOutput) {
  for (const Arguments& arguments : {Arguments{"--help"},
                                     {"replay", "--help"},
                                     {"capacity", "--help"},
                                     {"workload", "--help"},
                                     {"summary", "--help"},
                                     {"diff", "--help"},
                                     {"leaks", "--help"},
                                     {"blocks", "--help"},
                                     {"explain", "--help"},
                                     {"convert", "--help"}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, kExitSuccess);
    EXPECT_NE(result.out.find("Usage"), std::string::npos);
    EXPECT_EQ(result.err, "");
  }
  EXPECT_NE(run({"--help"}).out.find("capacity"), std::string::npos);
}

TEST_F(UsageTest, NoSubcommandOrAnUnknownOneIsRefusedWithTheNamesOfThoseThereAre) {
  expect_refused(run({}), {"no subcommand", "replay", "summary"});
  expect_refused(run({"repaly"}), {"'repaly'", "replay", "capacity", "workload", "summary"});
}

TEST_F(UsageTest, BadOptionsAndMissingFilesAreOneLineEach) {
  const std::string trace = write("t.trace", "a 1 512 0\nf 1\n");
  expect_refused(run({"replay"}), {"cistern replay", "TRACE"});
  expect_refused(run({"replay", trace, "--polici", "classic"}), {"cistern replay", "--polici"});
  expect_refused(run({"replay", trace, "--steps", "0"}), {"--steps"});
  expect_refused(run({"replay", trace, "--steps", "-1"}), {"--steps"});
  expect_refused(run({"replay", trace, "--perturb", "1.5"}), {"--perturb"});
  expect_refused(run({"replay", trace, "--capacity", "40gigs"}), {"--capacity", "'40gigs'", "GiB"});
  expect_refused(run({"replay", trace, "--capacity", "99999999TiB"}), {"--capacity", "2^64"});
  expect_refused(run({"replay", trace, "--memory-fraction", "1.5"}), {"1.5"});
  expect_refused(run({"replay", path("absent.trace")}), {"absent.trace"});
  expect_refused(run({"capacity"}), {"cistern capacity", "TRACE"});
  expect_refused(run({"summary"}), {"cistern summary", "SNAPSHOT"});
  expect_refused(run({"summary", path("absent.json")}), {"absent.json"});
}

TEST_F(UsageTest, ANumberIsAllOfItsTextAndInItsRange) {
  const std::string trace = write("t.trace", "a 1 512 0\nf 1\n");
  for (const char* bad : {"", "-1", "+1", "1x", "1.5", "nan", "0x10", " 1", "18446744073709551616"}) {
    const std::string text = "'" + std::string(bad) + "'";
    for (const char* option : {"--event-lag", "--seed"})
      expect_refused(run({"replay", trace, option, bad}), {"cistern replay", option, text, "a whole number from 0"});
    for (const char* option : {"--steps", "--stats-checkpoints"})
      expect_refused(run({"replay", trace, option, bad}), {"cistern replay", option, text, "a whole number from 1"});
    expect_refused(run({"workload", "sawtooth", "--seed", bad}),
                   {"cistern workload", "--seed", text, "a whole number from 0"});
  }
  for (const char* bad : {"", "-0.1", "1.5", "nan", "inf", "1e999", "0.5x"})
    for (const char* option : {"--perturb", "--memory-fraction"})
      expect_refused(run({"replay", trace, option, bad}),
                     {"cistern replay", option, "'" + std::string(bad) + "'", "a number from 0 to 1"});
  expect_refused(run({"replay", trace, "--capacity", ""}), {"cistern replay", "--capacity", "''", "bytes"});
}

TEST_F(UsageTest, ACountFromOneIsRefusedInAFewWords) {
  const std::string trace = write("t.trace", "a 1 512 0\nf 1\n");
  for (const char* option : {"--steps", "--stats-checkpoints"}) {
    const Result result = run({"replay", trace, option, "0"});
    expect_refused(result, {option, "'0'", "expected a whole number from 1"});
    EXPECT_LT(result.err.size(), 120U);
  }
}

TEST_F(UsageTest, TheEndsOfARangeAreInIt) {
  const std::string trace = write("t.trace", "a 1 512 0\nf 1\n");
  EXPECT_EQ(run({"replay", trace, "--seed", "18446744073709551615", "--perturb", "1", "--event-lag", "0"}).status,
            kExitSuccess);
  EXPECT_EQ(run({"replay", trace, "--steps", "18446744073709551615", "--perturb", "0"}).status, kExitSuccess);
  EXPECT_EQ(run({"replay", trace, "--stats-checkpoints", "18446744073709551615"}).objects().size(), 4U);
}

TEST_F(UsageTest, AnOutputThatCannotBeWrittenIsNoSuccess) {
  std::ostringstream out;
  std::ostringstream err;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(run_command({"workload"}, {out, err}), kExitBadUsage);
  EXPECT_NE(err.str().find("standard output"), std::string::npos);
}

}  // namespace
}  // namespace cistern
