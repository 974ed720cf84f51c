// What users add to a history: texts, notes on blocks, ranges.

#include <cistern/allocator.h>
#include <cistern/simulated.h>
#include <gtest/gtest.h>

#include "stats/text_table.h"
#include "tests/byte_units.h"

namespace cistern {
namespace {

struct UserMetadata : ::testing::Test {
  SimulatedDriver driver{SimulatedOptions{.devices = 2, .capacity_bytes = 64 * kMega, .backing = Backing::none}};
  CachingAllocator allocator{{.driver = &driver.api()}};

  [[nodiscard]] static std::string text_of(const Snapshot& snapshot, const TraceEntry& entry) {
    return entry.user_metadata < 0 ? "" : snapshot.texts.at(static_cast<std::size_t>(entry.user_metadata));
  }
};

TEST_F(UserMetadata, IsCarriedByEntriesUntilItChanges) {
  void* block = allocator.allocate(1000);
  allocator.set_user_metadata("step 1");
  allocator.deallocate(block);
  allocator.set_user_metadata("");
  static_cast<void>(allocator.allocate(1000));
  EXPECT_EQ(allocator.user_metadata(), "");
  const Snapshot snapshot = allocator.snapshot();
  const std::vector<TraceEntry>& entries = snapshot.device_traces.at(0);
  ASSERT_EQ(entries.size(), 5U);
  EXPECT_EQ(text_of(snapshot, entries[1]), "");
  EXPECT_EQ(text_of(snapshot, entries[2]), "step 1");
  EXPECT_EQ(text_of(snapshot, entries[3]), "step 1");
  EXPECT_EQ(text_of(snapshot, entries[4]), "");
}

TEST_F(UserMetadata, HoldsForDevicesThatAreUsedLater) {
  allocator.set_user_metadata("all devices");
  static_cast<void>(allocator.allocate(1000, nullptr, 1));
  const Snapshot snapshot = allocator.snapshot();
  EXPECT_EQ(text_of(snapshot, snapshot.device_traces.at(1).at(0)), "all devices");
}

TEST_F(UserMetadata, OfABlockIsAnEntryAnnotateWithItsAddress) {
  void* block = allocator.allocate(1000);
  allocator.annotate(block, "weights");
  const Snapshot snapshot = allocator.snapshot();
  const TraceEntry& entry = snapshot.device_traces.at(0).back();
  EXPECT_EQ(entry.action, TraceAction::annotate);
  EXPECT_EQ(entry.address, reinterpret_cast<std::uintptr_t>(block));
  EXPECT_EQ(text_of(snapshot, entry), "weights");
  EXPECT_THROW(allocator.annotate(static_cast<char*>(block) + 512, "inside"), InvalidArgument);
  allocator.set_user_metadata("step 1");
  allocator.annotate(block, "");
  const Snapshot after = allocator.snapshot();
  EXPECT_EQ(after.device_traces[0].back().action, TraceAction::annotate);
  EXPECT_EQ(text_of(after, after.device_traces[0].back()), "") << "not what other entries carry";
  EXPECT_THROW(allocator.annotate(nullptr, "nothing"), InvalidArgument);
}

TEST_F(UserMetadata, RangesAreInOneListWithTheirDevices) {
  allocator.mark_range("step 0", true, 1);
  allocator.mark_range("step 0", false, 1);
  const std::vector<ExternalAnnotation> marks = allocator.snapshot().external_annotations;
  ASSERT_EQ(marks.size(), 2U);
  EXPECT_EQ(marks[0].name, "step 0");
  EXPECT_TRUE(marks[0].is_start);
  EXPECT_FALSE(marks[1].is_start);
  EXPECT_EQ(marks[0].device, 1);
  EXPECT_LE(marks[0].time_us, marks[1].time_us);
  EXPECT_GT(marks[0].time_us, 1'600'000'000'000'000);
  EXPECT_THROW(allocator.mark_range("step 1", true, 7), InvalidArgument);
}

TEST_F(UserMetadata, RangesAreKeptInARingOfTheHistorysSizeAndNotWhileItIsOff) {
  allocator.record_history({.max_entries = 3});
  for (int i = 0; i < 5; ++i) allocator.mark_range("step " + std::to_string(i), true, 0);
  std::vector<ExternalAnnotation> marks = allocator.snapshot().external_annotations;
  ASSERT_EQ(marks.size(), 3U);
  EXPECT_EQ(marks[0].name, "step 2");
  allocator.record_history({.enabled = HistoryEnabled::none});
  allocator.mark_range("unseen", true, 0);
  EXPECT_TRUE(allocator.snapshot().external_annotations.empty());
}

TEST(TextTable, HoldsATextForAsLongAsItIsReferredTo) {
  TextTable texts;
  EXPECT_EQ(texts.intern(share_text("")), kNoText);
  const TextId a = texts.intern(share_text("a"));
  EXPECT_EQ(texts.intern(share_text("a")), a);
  texts.let_go(a);
  EXPECT_EQ(texts.text(a), "a");
  texts.let_go(a);
  const TextId b = texts.intern(share_text("b"));
  EXPECT_EQ(b, a) << "its number is used again";
  EXPECT_EQ(texts.text(b), "b");
}

TEST(TextTable, LeavesOutWhatGoesBeyondItsNumbers) {
  TextTable texts;
  for (int i = 0; i < 65535; ++i) ASSERT_NE(texts.intern(share_text(std::to_string(i))), kNoText) << i;
  EXPECT_EQ(texts.intern(share_text("one more")), kNoText);
  EXPECT_NE(texts.intern(share_text("17")), kNoText);
}

}  // namespace
}  // namespace cistern
