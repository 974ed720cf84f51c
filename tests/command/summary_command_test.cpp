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
  CachingAllocator allocator{{.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")}};
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

TEST_F(SummaryCommandTest, AsJsonItHasEveryStatisticAndWhereTheMemoryIs) {
  const Result result = run({"summary", write_snapshot(), "--json"});
  EXPECT_EQ(result.status, kExitSuccess) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["devices"].size(), 1u);
  const auto& device = json["devices"][0];
  EXPECT_EQ(device["device"], 0);
  const MemoryStats stats = allocator.memory_stats(0);
  const auto flat = stats.flat();
  EXPECT_EQ(device["stats"].size(), flat.size());
  for (const auto& [key, value] : flat) EXPECT_EQ(device["stats"][key], value) << key;
  const auto& memory = device["memory"];
  EXPECT_EQ(memory["live_blocks"], stats.allocation.all.current);
  EXPECT_EQ(memory["live_bytes"], stats.requested_bytes.all.current);
  EXPECT_EQ(memory["live_bytes"].get<std::int64_t>() + memory["rounding_bytes"].get<std::int64_t>(),
            stats.allocated_bytes.all.current);
  EXPECT_EQ(memory["free_split_bytes"], stats.inactive_split_bytes.all.current);
  EXPECT_EQ(memory["reserved_bytes"], stats.reserved_bytes.all.current);
}

TEST_F(SummaryCommandTest, AsJsonWhatTheFileDoesNotTellIsNull) {
  const Result result = run({"summary", write_snapshot_without_stats(), "--json"});
  EXPECT_EQ(result.status, kExitSuccess) << result.err;
  EXPECT_EQ(result.error_lines(), 1);
  const auto stats = nlohmann::json::parse(result.out)["devices"][0]["stats"];
  EXPECT_EQ(stats["allocated_bytes.all.current"], allocator.memory_stats(0).allocated_bytes.all.current);
  EXPECT_EQ(stats["max_split_size"], -1);
  EXPECT_EQ(stats["allocated_bytes.all.peak"], nullptr);
  EXPECT_EQ(stats["num_ooms"], nullptr);
}

class ExpandableSummaryTest : public SummaryCommandTest {
 protected:
  // A heap whose free block of 50 MiB holds two whole pages of 20 MiB.
  ExpandableSummaryTest() {
    (void)expandable.allocate(30 << 20);
    void* freed = expandable.allocate(50 << 20);
    (void)expandable.allocate(10 << 20);
    expandable.deallocate(freed);
  }
  [[nodiscard]] nlohmann::json summary_of(const Snapshot& snapshot) const {
    write_torch_json(snapshot, path("expandable.json"));
    return nlohmann::json::parse(run({"summary", path("expandable.json"), "--json"}).out)["devices"][0];
  }

  CachingAllocator expandable{
      {&driver.api(), AllocatorOptions::parse("expandable_segments:True,max_split_size_mb:25")}};
};

TEST_F(ExpandableSummaryTest, WholePagesAreFreeWholeAsAFlushGivesThemBack) {
  const nlohmann::json memory = summary_of(expandable.snapshot())["memory"];
  const std::int64_t reserved = expandable.memory_stats(0).reserved_bytes.all.current;
  expandable.empty_cache();
  EXPECT_EQ(memory["free_whole_bytes"], reserved - expandable.memory_stats(0).reserved_bytes.all.current);
  EXPECT_EQ(memory["free_whole_bytes"], 40 << 20);
  EXPECT_EQ(memory["free_split_bytes"], (10 << 20) + (10 << 20)) << "beside the pages, and at the end";
}

TEST_F(ExpandableSummaryTest, SegmentsAreNoOversizeOnes) {
  Snapshot snapshot = expandable.snapshot();
  snapshot.device_stats.clear();
  const nlohmann::json stats = summary_of(snapshot)["stats"];
  EXPECT_EQ(stats["oversize_segments.current"], 0);
  EXPECT_EQ(stats["oversize_segments.current"], expandable.memory_stats(0).oversize_segments.current);
  EXPECT_EQ(stats["oversize_allocations.current"], expandable.memory_stats(0).oversize_allocations.current);
  EXPECT_EQ(stats["oversize_allocations.current"], 1);
}

TEST_F(SummaryCommandTest, EveryFormTellsTheSame) {
  const Snapshot snapshot = allocator.snapshot();
  const std::string expected = run({"summary", write_snapshot()}).out;
  write_pickle(snapshot, path("s.pickle"), 2);
  write_torch_json(snapshot, path("s.json"));
  ASSERT_EQ(run({"convert", path("s.json"), path("s.pickle.gz")}).status, kExitSuccess);
  for (const char* name : {"s.pickle", "s.json", "s.pickle.gz"}) EXPECT_EQ(run({"summary", path(name)}).out, expected);
}

TEST_F(SummaryCommandTest, OneDeviceCanBeAskedFor) {
  (void)allocator.allocate(1000, nullptr, 1);
  EXPECT_EQ(run({"summary", write_snapshot(), "--device", "1"}).out, allocator.memory_summary(1));
  EXPECT_EQ(run({"summary", write_snapshot(), "--device", "2"}).error_lines(), 1);
}

TEST_F(SummaryCommandTest, AFileThatIsNoSnapshotIsRefusedWithLineAndText) {
  expect_refused(run({"summary", write("bad.json", "{\n \"device_traces\": [[]],\n \"segments\": 7\n}\n")}),
                 {"bad.json: 'segments: 7'", "expected"});
  expect_refused(run({"summary", write("cut.json", "{\"segments\": [")}), {"cut.json", "expected"});
}

}  // namespace
}  // namespace cistern
