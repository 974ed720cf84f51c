// The entries of each operation, and their order: PyTorch's, by its documentation of
// torch.cuda.memory._record_memory_history and its recorded runs.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/byte_units.h"
#include "tests/history/trace_replay.h"

namespace cistern {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

class EntryOrder : public ::testing::Test {
 protected:
  explicit EntryOrder(std::size_t capacity = 1024 * kMega, const char* options = "oom_dump:off")
      : driver({.capacity_bytes = capacity, .backing = Backing::none}),
        allocator({.driver = &driver.api(),
                   .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))}),
        other(driver.create_stream()) {}

  // The entries since the last call.
  std::vector<TraceEntry> news() {
    HistoryOptions fresh = allocator.history_options();
    const std::vector<TraceEntry> entries = allocator.snapshot().device_traces.at(0);
    fresh.clear_history = true;
    allocator.record_history(fresh);
    return entries;
  }
  std::vector<std::string> new_actions() { return actions_and_sizes(news()); }
  // A block that the other stream still uses, freed.
  void* free_pending(std::size_t bytes) {
    void* block = allocator.allocate(bytes);
    driver.occupy(other, 1ms);
    allocator.deallocate(block, other);
    return block;
  }

  SimulatedDriver driver;
  CachingAllocator allocator;
  StreamHandle other;
};

TEST_F(EntryOrder, AHitIsOneEntryAndAMissHasItsSegmentFirst) {
  void* block = allocator.allocate(1000);
  EXPECT_THAT(new_actions(), ElementsAre("segment_alloc 2097152", "alloc 1000"));
  static_cast<void>(allocator.allocate(700));
  EXPECT_THAT(new_actions(), ElementsAre("alloc 700"));
  allocator.deallocate(block);
  const std::vector<TraceEntry> freed = news();
  EXPECT_THAT(actions_and_sizes(freed), ElementsAre("free_requested 1000", "free_completed 1000"));
  EXPECT_EQ(freed[0].address, reinterpret_cast<std::uintptr_t>(block));
  EXPECT_EQ(freed[1].address, freed[0].address);
}

TEST_F(EntryOrder, ACompletedFreeNamesTheBlockAsItWasBeforeItMerged) {
  void* low = allocator.allocate(1000);
  void* high = allocator.allocate(1000);
  allocator.deallocate(low);
  static_cast<void>(news());
  allocator.deallocate(high);
  EXPECT_EQ(news().at(1).address, reinterpret_cast<std::uintptr_t>(high));
}

TEST_F(EntryOrder, APendingFreeCompletesInTheMallocThatFindsIt) {
  free_pending(1000);
  EXPECT_THAT(new_actions(), ElementsAre("segment_alloc 2097152", "alloc 1000", "free_requested 1000"));
  static_cast<void>(allocator.allocate(10));
  EXPECT_THAT(new_actions(), ElementsAre("alloc 10"));
  driver.run_until_idle(other);
  static_cast<void>(allocator.allocate(20));
  EXPECT_THAT(new_actions(), ElementsAre("free_completed 1000", "alloc 20"));
}

TEST_F(EntryOrder, EmptyCacheCompletesPendingFreesAndThenGivesBackLargeSegmentsBySizeAndSmallOnes) {
  allocator.deallocate(allocator.allocate(1000));
  void* a = allocator.allocate(30 * kMega);
  void* b = allocator.allocate(26 * kMega);
  allocator.deallocate(a);
  allocator.deallocate(b);
  free_pending(20 * kMega);
  static_cast<void>(news());
  allocator.empty_cache();
  EXPECT_THAT(new_actions(), ElementsAre("free_completed 20971520", "segment_free 27262976", "segment_free 31457280",
                                         "segment_free 2097152"))
      << "the freed 20 MiB block lay in the 26 MiB segment";
}

TEST_F(EntryOrder, PrivatePoolsComeLastAndEntriesNameThePool) {
  allocator.deallocate(allocator.allocate(1000));
  allocator.begin_allocate_to_pool(0, {0, 3}, PoolFilter::every_stream());
  void* pooled = allocator.allocate(2000);
  allocator.end_allocate_to_pool(0, {0, 3});
  allocator.deallocate(pooled);
  allocator.release_pool(0, {0, 3});
  static_cast<void>(news());
  allocator.empty_cache();
  const std::vector<TraceEntry> entries = news();
  EXPECT_THAT(actions_and_sizes(entries), ElementsAre("segment_free 2097152", "segment_free 2097152"));
  EXPECT_EQ(entries[0].pool_id, (std::pair<std::int64_t, std::int64_t>{0, 0}));
  EXPECT_EQ(entries[1].pool_id, (std::pair<std::int64_t, std::int64_t>{0, 3}));
}

TEST_F(EntryOrder, TheEntryOfASnapshotIsInTheNextOne) {
  static_cast<void>(allocator.allocate(1000));
  EXPECT_THAT(actions_and_sizes(allocator.snapshot().device_traces.at(0)),
              ElementsAre("segment_alloc 2097152", "alloc 1000"));
  const std::vector<TraceEntry> entries = allocator.snapshot().device_traces.at(0);
  EXPECT_THAT(actions_and_sizes(entries), ElementsAre("segment_alloc 2097152", "alloc 1000", "snapshot 1024"));
  EXPECT_EQ(entries[2].address, 0U);
  EXPECT_EQ(entries[2].stream, 0);
}

TEST_F(EntryOrder, ARestoredCheckpointIsFreesAndAllocations) {
  allocator.begin_allocate_to_pool(0, {0, 3}, PoolFilter::every_stream());
  static_cast<void>(allocator.allocate(1000));
  const PoolCheckpoint checkpoint = allocator.checkpoint_pool(0, {0, 3});
  static_cast<void>(allocator.allocate(2000));
  static_cast<void>(news());
  static_cast<void>(allocator.restore_pool(0, checkpoint));
  EXPECT_THAT(new_actions(),
              ElementsAre("free_requested 1000", "free_completed 1000", "free_requested 2000", "free_completed 2000",
                          "alloc 1024", "alloc 2096128", "free_requested 2096128", "free_completed 2096128"));
  allocator.end_allocate_to_pool(0, {0, 3});
}

TEST_F(EntryOrder, OfTheWorkedScenarioIsTheOneThatTheContractGives) {
  void* x = allocator.allocate(1000);
  void* y = allocator.allocate(3145729);
  allocator.deallocate(x);
  driver.occupy(other, 1ms);
  allocator.record_stream(y, other);
  allocator.deallocate(y);
  driver.run_until_idle(other);
  void* z = allocator.allocate(12582912);
  void* w = allocator.allocate(15728641);
  allocator.deallocate(z);
  allocator.deallocate(w);
  allocator.empty_cache();
  EXPECT_THAT(
      new_actions(),
      ElementsAre("segment_alloc 2097152", "alloc 1000", "segment_alloc 20971520", "alloc 3145729",
                  "free_requested 1000", "free_completed 1000", "free_requested 3145729", "free_completed 3145729",
                  "alloc 12582912", "segment_alloc 16777216", "alloc 15728641", "free_requested 12582912",
                  "free_completed 12582912", "free_requested 15728641", "free_completed 15728641",
                  "segment_free 16777216", "segment_free 20971520", "segment_free 2097152"));
}

class ShortOfMemory : public EntryOrder {
 protected:
  ShortOfMemory() : EntryOrder(96 * kMega) {}
};

// Which segment an entry is about, in the order in which they came, and where in it.
std::vector<std::string> places_of(const std::vector<TraceEntry>& entries) {
  struct Segment {
    std::uint64_t address = 0;
    std::int64_t bytes = 0;
    bool there = true;
  };
  std::vector<Segment> segments;
  std::vector<std::string> places;
  for (const TraceEntry& entry : entries) {
    if (entry.action == TraceAction::segment_alloc) segments.push_back({entry.address, entry.size});
    std::string place = std::string(to_string(entry.action)) + " " + std::to_string(entry.size);
    if (entry.action == TraceAction::oom) place += " free " + std::to_string(entry.address);
    for (std::size_t i = 0; i < segments.size() && entry.action != TraceAction::oom; ++i)
      if (segments[i].there && entry.address >= segments[i].address &&
          entry.address < segments[i].address + static_cast<std::uint64_t>(segments[i].bytes)) {
        place += " in " + std::to_string(i) + " at " + std::to_string(entry.address - segments[i].address);
        if (entry.action == TraceAction::segment_free) segments[i].there = false;
      }
    places.push_back(place);
  }
  return places;
}

// The trace of the sample that is next to the contract.
std::vector<TraceEntry> sample_trace(const std::filesystem::path& path) {
  std::vector<TraceEntry> entries;
  const nlohmann::json sample = nlohmann::json::parse(std::ifstream(path));
  for (const auto& object : sample.at("device_traces").at(0)) {
    TraceEntry entry;
    entry.action = trace_action(object.at("action").get<std::string>());
    entry.address = object.at(entry.action == TraceAction::oom ? "device_free" : "addr");
    entry.size = object.at("size");
    entries.push_back(entry);
  }
  return entries;
}

TEST_F(ShortOfMemory, ARetryAndARefusalAreAsInTheSample) {
  const std::filesystem::path sample =
      std::filesystem::path(CISTERN_SOURCE_DIR) / "../shared/reference/snapshot-sample.json";
  if (!std::filesystem::exists(sample)) GTEST_SKIP() << "no " << sample << " here";
  static_cast<void>(allocator.allocate(1000));
  void* large = allocator.allocate(3145729);
  static_cast<void>(allocator.allocate(5000));
  static_cast<void>(allocator.allocate(700000, other));
  driver.occupy(other, 1ms);
  allocator.record_stream(large, other);
  allocator.deallocate(large);
  allocator.deallocate(allocator.allocate(50 * kMega));
  static_cast<void>(allocator.allocate(66 * kMega));
  EXPECT_THROW(static_cast<void>(allocator.allocate(90 * kMega)), OutOfMemoryError);
  driver.occupy(other, 1ms);
  allocator.deallocate(allocator.allocate(4096), other);
  const std::vector<TraceEntry> entries = news();
  EXPECT_EQ(places_of(entries), places_of(sample_trace(sample)));
}

TEST_F(ShortOfMemory, ASegmentThatTheDriverRefusesToTakeComesBack) {
  allocator.deallocate(allocator.allocate(1000));
  static_cast<void>(news());
  driver.fail_call("cuMemFree", 1, 999);
  EXPECT_THROW(allocator.empty_cache(), DriverError);
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_EQ(snapshot.segments.size(), 1U);
  EXPECT_THAT(actions_and_sizes(snapshot.device_traces.at(0)),
              ElementsAre("segment_free 2097152", "segment_alloc 2097152"));
}

}  // namespace
}  // namespace cistern
