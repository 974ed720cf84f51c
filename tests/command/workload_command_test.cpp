#include "bench/workloads/workload.h"
#include "tests/command/command_fixture.h"
#include "tools/trace.h"

namespace cistern {
namespace {

using WorkloadCommandTest = CommandTest;

std::string first_workload() { return workloads().front().name; }

TEST_F(WorkloadCommandTest, WithoutANameListsAllWithALineEach) {
  const Result result = run({"workload"});
  EXPECT_EQ(result.status, kExitSuccess);
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(result.out, '\n')), workloads().size());
  for (const Workload& workload : workloads()) EXPECT_NE(result.out.find(workload.name), std::string::npos);
}

TEST_F(WorkloadCommandTest, WritesATraceThatItsOwnReaderAccepts) {
  const Result result = run({"workload", first_workload()});
  ASSERT_EQ(result.status, kExitSuccess) << result.err;
  const Trace trace = parse_trace(result.out, "generated");
  EXPECT_GT(trace.requests(), 0U);
  EXPECT_EQ(trace.allocations, trace.frees);
}

TEST_F(WorkloadCommandTest, TheSameSeedGivesTheSameTracePlainOrCompressed) {
  const std::string plain = path("w.trace");
  const std::string compressed = path("w.trace.gz");
  ASSERT_EQ(run({"workload", first_workload(), "--seed", "5", "-o", plain}).status, kExitSuccess);
  ASSERT_EQ(run({"workload", first_workload(), "--seed", "5", "-o", compressed}).status, kExitSuccess);
  EXPECT_LT(std::filesystem::file_size(compressed), std::filesystem::file_size(plain));
  const Trace from_plain = read_trace(plain);
  const Trace from_compressed = read_trace(compressed);
  EXPECT_EQ(from_plain.operations, from_compressed.operations);
  EXPECT_EQ(from_plain.operations, parse_trace(run({"workload", first_workload(), "--seed", "5"}).out, "x").operations);
}

TEST_F(WorkloadCommandTest, AHyphenIsStandardOutput) {
  EXPECT_EQ(run({"workload", first_workload(), "-o", "-"}).out, run({"workload", first_workload()}).out);
}

TEST_F(WorkloadCommandTest, BadUsageIsRefused) {
  expect_refused(run({"workload", "no-such-model"}), {"'no-such-model'", first_workload()});
  expect_refused(run({"workload", "--seed", "3"}), {"NAME"});
  expect_refused(run({"workload", first_workload(), "--seed", "x"}), {"--seed"});
  expect_refused(run({"workload", first_workload(), "-o", path("no/such/folder/w.trace")}), {"no/such/folder/w.trace"});
}

}  // namespace
}  // namespace cistern
