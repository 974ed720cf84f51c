// What is recorded by which options, and that bad ones change nothing.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/byte_units.h"
#include "tests/history/trace_replay.h"

namespace cistern {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct HistoryOfAnAllocator : ::testing::Test {
  SimulatedDriver driver{SimulatedOptions{.devices = 2, .capacity_bytes = 256 * kMega, .backing = Backing::none}};
  CachingAllocator allocator{{.driver = &driver.api(), .options = AllocatorOptions::parse("policy:classic")}};

  [[nodiscard]] std::vector<std::string> trace(std::size_t device = 0) {
    return actions_and_sizes(allocator.snapshot().device_traces.at(device));
  }
};

TEST_F(HistoryOfAnAllocator, IsThereBeforeAnybodyAsks) {
  allocator.deallocate(allocator.allocate(1000));
  EXPECT_THAT(trace(),
              ElementsAre("segment_alloc 2097152", "alloc 1000", "free_requested 1000", "free_completed 1000"));
  const HistoryOptions options = allocator.history_options();
  EXPECT_EQ(options.enabled, HistoryEnabled::all);
  EXPECT_EQ(options.context, HistoryContext::none);
  EXPECT_EQ(options.max_entries, kDefaultHistoryEntries);
  const AllocatorSettings settings = allocator.snapshot().settings;
  EXPECT_EQ(settings.trace_alloc_max_entries, static_cast<std::int64_t>(kDefaultHistoryEntries));
  EXPECT_FALSE(settings.trace_alloc_overflowed);
}

TEST_F(HistoryOfAnAllocator, OffDropsWhatWasRecordedAndTheSnapshotIsValidStill) {
  static_cast<void>(allocator.allocate(1000));
  allocator.record_history({.enabled = HistoryEnabled::none});
  static_cast<void>(allocator.allocate(2000));
  const Snapshot snapshot = allocator.snapshot();
  ASSERT_EQ(snapshot.device_traces.size(), 2U) << "one list a device";
  EXPECT_THAT(snapshot.device_traces[0], IsEmpty());
  EXPECT_THAT(snapshot.stacks, IsEmpty());
  EXPECT_EQ(snapshot.segments.at(0).blocks.size(), 3U);
  EXPECT_EQ(snapshot.settings.trace_alloc_max_entries, 0);
  EXPECT_EQ(allocator.history_info().recorded, 0U);
}

// More entries than are let go in one piece.
TEST_F(HistoryOfAnAllocator, OffLetsGoOfTheStacksOfEveryEntry) {
  allocator.record_history({});
  for (int i = 0; i < 5000; ++i) allocator.deallocate(allocator.allocate(1000));
  EXPECT_GT(allocator.history_info().stacks, 0U);
  allocator.record_history({.enabled = HistoryEnabled::none});
  EXPECT_EQ(allocator.history_info().stacks, 0U);
}

TEST_F(HistoryOfAnAllocator, StateKeepsOneEntry) {
  allocator.record_history({.enabled = HistoryEnabled::state, .clear_history = true});
  static_cast<void>(allocator.allocate(1000));
  static_cast<void>(allocator.allocate(2000));
  EXPECT_THAT(trace(), ElementsAre("alloc 2000"));
}

TEST_F(HistoryOfAnAllocator, AFullRingSaysThatItOverflowed) {
  allocator.record_history({.max_entries = 3});
  allocator.deallocate(allocator.allocate(1000));
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_THAT(actions_and_sizes(snapshot.device_traces.at(0)),
              ElementsAre("alloc 1000", "free_requested 1000", "free_completed 1000"));
  EXPECT_TRUE(snapshot.settings.trace_alloc_overflowed);
  EXPECT_EQ(snapshot.settings.trace_alloc_max_entries, 3);
}

TEST_F(HistoryOfAnAllocator, OptionsHoldForDevicesThatAreUsedLater) {
  static_cast<void>(allocator.allocate(1000));
  allocator.record_history({.max_entries = 2, .skip_actions = {TraceAction::segment_alloc}});
  static_cast<void>(allocator.allocate(2000, nullptr, 1));
  EXPECT_THAT(trace(1), ElementsAre("alloc 2000"));
}

TEST_F(HistoryOfAnAllocator, ABadOptionIsNamedAndNothingIsChanged) {
  static_cast<void>(allocator.allocate(1000));
  const auto refusal = [&](const HistoryOptions& options) -> std::string {
    try {
      allocator.record_history(options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({.max_entries = 0, .clear_history = true}), HasSubstr("max_entries 0: expected at least 1"));
  EXPECT_THAT(refusal({.max_frames = 0, .clear_history = true}), HasSubstr("max_frames 0: expected 1 to 128"));
  EXPECT_THAT(refusal({.max_frames = 129, .clear_history = true}), HasSubstr("max_frames 129: expected 1 to 128"));
  EXPECT_EQ(allocator.history_options().max_entries, kDefaultHistoryEntries);
  EXPECT_THAT(trace(), ElementsAre("segment_alloc 2097152", "alloc 1000"));
}

TEST_F(HistoryOfAnAllocator, TextOfOptionsChangesWhatItNames) {
  allocator.record_history({.max_entries = 5000, .max_frames = 7});
  allocator.set_options("oom_dump:off");
  EXPECT_EQ(allocator.history_options().max_frames, 7U) << "nothing of the history is named";
  allocator.set_options("history_context:state,history_entries:3");
  const HistoryOptions options = allocator.history_options();
  EXPECT_EQ(options.context, HistoryContext::state);
  EXPECT_EQ(options.max_entries, 3U);
  EXPECT_EQ(options.max_frames, 7U);
  static_cast<void>(allocator.allocate(1000));
  EXPECT_THROW(allocator.set_options("history:none,policy:async"), NotSupported) << "the policy is fixed by now";
  EXPECT_EQ(allocator.history_options().enabled, HistoryEnabled::all) << "a text that is refused changes nothing";
  allocator.set_options("history:none");
  EXPECT_THAT(trace(), IsEmpty());
}

TEST(HistoryFromTheStart, IsAsTheOptionsSay) {
  SimulatedDriver driver({.capacity_bytes = 256 * kMega, .backing = Backing::none});
  CachingAllocator quiet({.driver = &driver.api(), .options = AllocatorOptions::parse("history:none,policy:classic")});
  static_cast<void>(quiet.allocate(1000));
  EXPECT_THAT(quiet.snapshot().device_traces.at(0), IsEmpty());
  CachingAllocator loud(
      {.driver = &driver.api(), .options = AllocatorOptions::parse("history_context:all,policy:classic")});
  static_cast<void>(loud.allocate(1000));
  EXPECT_FALSE(loud.snapshot().stacks.empty());
  AllocatorOptions bad;
  bad.history.max_entries = 0;
  EXPECT_THROW(CachingAllocator({.driver = &driver.api(), .options = bad}), InvalidArgument);
}

TEST(TraceActions, HaveTheNamesThatPyTorchGivesThem) {
  for (const char* name : {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
                           "segment_unmap", "snapshot", "oom", "annotate"})
    EXPECT_STREQ(to_string(trace_action(name)), name);
  try {
    static_cast<void>(trace_action("free"));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("history action 'free': expected one of alloc, free_requested"));
  }
}

}  // namespace
}  // namespace cistern
