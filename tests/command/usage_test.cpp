#include "tests/command/command_fixture.h"

namespace cistern {
namespace {

using UsageTest = CommandTest;

TEST_F(UsageTest, HelpOfTheCommandAndOfEachSubcommandGoesToStandardOutput) {
  for (const Arguments& arguments : {Arguments{"--help"},
                                     {"replay", "--help"},
                                     {"capacity", "--help"},
                                     {"workload", "--help"},
                                     {"summary", "--help"}}) {
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

TEST_F(UsageTest, AnOutputThatCannotBeWrittenIsNoSuccess) {
  std::ostringstream out;
  std::ostringstream err;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(run_command({"workload"}, {out, err}), kExitBadUsage);
  EXPECT_NE(err.str().find("standard output"), std::string::npos);
}

}  // namespace
}  // namespace cistern
