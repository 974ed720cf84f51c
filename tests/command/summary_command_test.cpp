#include <cistern/allocator.h>
#include <cistern/simulated.h>

#include "tests/command/command_fixture.h"

namespace cistern {
namespace {

class SummaryCommandTest : public CommandTest {
 protected:
  // A device with blocks in use, a free one between them, and a history.
  SummaryCommandTest() {
    void* first = allocator.allocate(3 << 20);
    void* second = allocator.allocate(5 << 20);
    (void)allocator.allocate(1000);
    (void)allocator.allocate(2 << 20);
    allocator.deallocate(first);
    allocator.deallocate(second);
    (void)allocator.allocate(1 << 20);
  }
  std::string write_snapshot() const {
    write_json(allocator.snapshot(), path("snapshot.json"));
    return path("snapshot.json");
  }
  // As PyTorch writes it: without statistics.
  std::string write_snapshot_without_stats() const {
    nlohmann::json snapshot;
    std::ifstream(write_snapshot()) >> snapshot;
    snapshot.erase("device_stats");
    return write("torch.json", snapshot.dump());
  }

  SimulatedDriver driver{[] {
    SimulatedOptions options;
    options.capacity_bytes = 1 << 30;
    options.backing = Backing::none;
    options.devices = 2;
    return options;
  }()};
  CachingAllocator allocator{{&driver.api(), {}}};
};

TEST_F(SummaryCommandTest, PrintsTheTableOfEachDeviceThatHasMemory) {
  const Result result = run({"summary", write_snapshot()});
  EXPECT_EQ(result.status, kExitSuccess) << result.err;
  EXPECT_EQ(result.out, allocator.memory_summary(0));  // device 1 was never used
  EXPECT_EQ(result.err, "");
}

TEST_F(SummaryCommandTest, AbbreviatedLeavesOutThePools) {
  EXPECT_EQ(run({"summary", write_snapshot(), "--abbreviated"}).out, allocator.memory_summary(0, true));
}

TEST_F(SummaryCommandTest, WithoutStatisticsCurrentFiguresAreRecomputedAndTheRestIsADash) {
  const Result result = run({"summary", write_snapshot_without_stats()});
  EXPECT_EQ(result.status, kExitSuccess) << result.err;
  EXPECT_EQ(result.error_lines(), 1);
  EXPECT_NE(result.err.find("torch.json"), std::string::npos);

  std::istringstream expected(allocator.memory_summary(0));
  std::istringstream lines(result.out);
  int rows = 0;
  for (std::string want, line; std::getline(expected, want);) {
    ASSERT_TRUE(std::getline(lines, line));
    ASSERT_EQ(line.size(), want.size());
    if (want.size() > 38 && want[24] == '|' && want.find("Metric") == std::string::npos) {
      ++rows;
      EXPECT_EQ(line.substr(0, 38), want.substr(0, 38));  // the label and the current value
      EXPECT_EQ(line.substr(38), "          - |          - |          - |");
    }
  }
  EXPECT_EQ(rows, 29);
  EXPECT_NE(result.out.find("CUDA OOMs: -            |        cudaMalloc retries: -         |"), std::string::npos);
}

TEST_F(SummaryCommandTest, ASnapshotWithoutAnyUseSaysSo) {
  CachingAllocator unused{{&driver.api(), {}}};
  write_json(unused.snapshot(), path("unused.json"));
  for (const std::string& file :
       {path("unused.json"), write("empty.json", "{\"segments\": [], \"device_traces\": []}")}) {
    const Result result = run({"summary", file});
    EXPECT_EQ(result.status, kExitSuccess);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.error_lines(), 1);
    EXPECT_NE(result.err.find(file + ": no device"), std::string::npos) << result.err;
  }
}

TEST_F(SummaryCommandTest, AFileThatIsNoSnapshotIsRefusedWithLineAndText) {
  expect_refused(run({"summary", write("bad.json", "{\n \"device_traces\": [[]],\n \"segments\": 7\n}\n")}),
                 {"bad.json: 'segments: 7'", "expected"});
  expect_refused(run({"summary", write("cut.json", "{\"segments\": [")}), {"cut.json", "expected"});
}

}  // namespace
}  // namespace cistern
