// Snapshots and changes of options while other threads allocate and free.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/byte_units.h"
#include "tests/history/load.h"
#include "tests/property.h"

namespace cistern {
namespace {

void expect_every_snapshot_to_be_one_moment(const char* options) {
  const long rounds = scaled(30);
  for (long round = 0; round < rounds; ++round) {
    SimulatedDriver driver({.capacity_bytes = 512 * kMega, .backing = Backing::none});
    CachingAllocator allocator(
        {.driver = &driver.api(),
         .options = AllocatorOptions::parse(options, AllocatorOptions::parse("policy:classic"))});
    allocator.record_history({});
    Load load(allocator, driver.create_stream(), 12 * kMega);
    for (int i = 0; i < 20; ++i) {
      load.go_on();
      const Snapshot snapshot = allocator.snapshot();
      ASSERT_EQ(fault_of_moment(snapshot), "") << "round " << round << ", snapshot " << i;
      ASSERT_EQ(fault_of_entries(snapshot), "") << "round " << round << ", snapshot " << i;
    }
  }
}

TEST(HistoryUnderLoad, EverySnapshotIsOneMoment) { expect_every_snapshot_to_be_one_moment("oom_dump:off"); }

TEST(HistoryUnderLoad, EverySnapshotOfExpandableSegmentsIsOneMoment) {
  expect_every_snapshot_to_be_one_moment("oom_dump:off,policy:expandable");
}

TEST(HistoryUnderLoad, OptionsChangeWithoutHarm) {
  SimulatedDriver driver({.capacity_bytes = 512 * kMega, .backing = Backing::none});
  CachingAllocator allocator(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("oom_dump:off,policy:classic")});
  {
    Load load(allocator, driver.create_stream(), 12 * kMega);
    load.go_on();
    load.go_on_for_ever();
    std::mt19937 random(20261121);
    const long changes = scaled(2000);
    for (long i = 0; i < changes; ++i) {
      HistoryOptions options;
      options.enabled = static_cast<HistoryEnabled>(random() % 3);
      options.context = static_cast<HistoryContext>(random() % 4);
      options.max_entries = 1 + random() % 3000;
      options.max_frames = 1 + random() % 128;
      options.max_stack_bytes = random() % 4 == 0 ? 300 : 1 << 20;
      options.clear_history = random() % 2 == 0;
      if (random() % 4 == 0) options.skip_actions = {TraceAction::free_requested};
      allocator.record_history(options);
      allocator.set_user_metadata("change " + std::to_string(i % 7));
      if (i % 8 == 0) {
        const Snapshot snapshot = allocator.snapshot();
        for (const TraceEntry& entry : snapshot.device_traces.at(0)) {
          ASSERT_LT(entry.stack, static_cast<StackIndex>(snapshot.stacks.size()));
          ASSERT_LT(entry.user_metadata, static_cast<std::int32_t>(snapshot.texts.size()));
          ASSERT_LE(static_cast<int>(entry.action), static_cast<int>(TraceAction::annotate));
        }
      }
    }
  }
  allocator.record_history({.enabled = HistoryEnabled::none});
  EXPECT_EQ(allocator.history_info().entries, 0U);
}

}  // namespace
}  // namespace cistern
