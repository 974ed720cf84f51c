// The ring keeps the newest entries in order, whatever its size and however it changes.

#include "stats/history.h"

#include "stats/recorder.h"
#include "tests/history/entries_of.h"

#include <gtest/gtest.h>

#include <vector>

namespace cistern {
namespace {

HistoryOptions with_entries(std::size_t entries) {
  HistoryOptions options;
  options.context = HistoryContext::none;
  options.max_entries = entries;
  return options;
}

void use(DeviceHistory& history, HistoryOptions options) {
  const DeviceHistory::RingSize size = history.ring_for(options);
  DeviceHistory::Retired retired = history.set_options(options, HistoryRing(size.capacity, size.prepared));
  while (history.let_go_some(retired)) {
  }
}

void add(DeviceHistory& history, std::int64_t first, std::int64_t last) {
  for (std::int64_t i = first; i < last; ++i) {
    TracePoint at;
    at.size = i;
    history.add(TraceAction::alloc, at);
  }
}

std::vector<std::int64_t> sizes_of(const DeviceHistory& history) {
  std::vector<std::int64_t> sizes;
  for (const TraceEntry& entry : entries_of(history)) sizes.push_back(entry.size);
  return sizes;
}

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = first; i < last; ++i) all.push_back(i);
  return all;
}

TEST(HistoryRing, KeepsTheNewestInOrder) {
  // Around the sizes at which a chunk ends.
  for (const std::int64_t capacity : {1, 2, 3, 2047, 2048, 2049, 20000})
    for (const std::int64_t written : {std::int64_t{0}, std::int64_t{1}, capacity - 1, capacity, capacity + 1,
                                       2 * capacity, 2 * capacity + 7, std::int64_t{30000}}) {
      DeviceHistory history;
      use(history, with_entries(static_cast<std::size_t>(capacity)));
      add(history, 0, written);
      EXPECT_EQ(sizes_of(history), numbers(std::max<std::int64_t>(0, written - capacity), written))
          << "capacity " << capacity << ", written " << written;
      DeviceHistory::Copy copy;
      history.copy_to(copy);
      EXPECT_EQ(copy.overflowed, written > capacity);
      EXPECT_EQ(history.info().entries, static_cast<std::size_t>(std::min(written, capacity)));
    }
}

TEST(HistoryRing, AnUnlimitedOneGrows) {
  DeviceHistory history;
  use(history, with_entries(kUnlimitedEntries));
  add(history, 0, 50000);
  EXPECT_EQ(sizes_of(history), numbers(0, 50000));
}

TEST(HistoryRing, AFreeThatWasCompleteAtOnceIsTwoEntriesAndCountsAsTwo) {
  DeviceHistory history;
  use(history, with_entries(5));
  for (std::int64_t i = 0; i < 4; ++i) {
    TracePoint at;
    at.size = i;
    history.add_freed(at);
  }
  const std::vector<TraceEntry> entries = entries_of(history);
  ASSERT_EQ(entries.size(), 5U) << "never more than was asked for";
  EXPECT_EQ(entries[0].action, TraceAction::free_completed);
  EXPECT_EQ(entries[0].size, 1);
  EXPECT_EQ(entries[1].action, TraceAction::free_requested);
  EXPECT_EQ(entries[2].action, TraceAction::free_completed);
  EXPECT_EQ(entries[4].size, 3);
  EXPECT_EQ(history.info().entries, 5U);
  EXPECT_EQ(history.info().recorded, 8U);
}

TEST(HistoryRing, AnotherSizeKeepsWhatIsHeld) {
  DeviceHistory history;
  use(history, with_entries(100));
  add(history, 0, 150);
  use(history, with_entries(1000));
  EXPECT_EQ(sizes_of(history), numbers(50, 150));
  add(history, 150, 1100);
  EXPECT_EQ(sizes_of(history), numbers(100, 1100));
  use(history, with_entries(10));
  EXPECT_EQ(sizes_of(history), numbers(100, 1100)) << "a smaller size drops nothing";
  add(history, 1100, 1105);
  EXPECT_EQ(sizes_of(history), numbers(105, 1105)) << "and the ring keeps the size of what it held";
  HistoryOptions cleared = with_entries(10);
  cleared.clear_history = true;
  use(history, cleared);
  EXPECT_TRUE(sizes_of(history).empty());
  add(history, 0, 20);
  EXPECT_EQ(sizes_of(history), numbers(10, 20));
}

TEST(HistoryRing, SkippedActionsAreNotWrittenAlsoOfFreesThatAreCompleteAtOnce) {
  DeviceHistory history;
  HistoryOptions options = with_entries(10);
  options.skip_actions = {TraceAction::free_completed, TraceAction::snapshot};
  use(history, options);
  history.add_freed({});
  history.add(TraceAction::snapshot, {});
  history.add(TraceAction::alloc, {});
  const std::vector<TraceEntry> entries = entries_of(history);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].action, TraceAction::free_requested);
  EXPECT_EQ(entries[1].action, TraceAction::alloc);
}

TEST(HistoryRing, EntriesCarryEveryFieldAndTheTimeOfTheWallClock) {
  DeviceHistory history;
  use(history, with_entries(10));
  const auto now_us = [] {
    std::timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
  };
  const std::int64_t before = now_us();
  TracePoint at;
  at.address = 0x7fff'ffff'fe00;
  at.size = -1;
  at.stream = -2;
  at.pool = encode_pool(0, 7);
  at.tag = 65535;
  history.add(TraceAction::oom, at);
  const std::int64_t after = now_us();
  const TraceEntry entry = entries_of(history).at(0);
  EXPECT_EQ(entry.action, TraceAction::oom);
  EXPECT_EQ(entry.address, at.address);
  EXPECT_EQ(entry.size, -1);
  EXPECT_EQ(entry.stream, -2);
  EXPECT_EQ(entry.pool_id, (std::pair<std::int64_t, std::int64_t>{0, 7}));
  EXPECT_EQ(entry.tag, 65534);
  EXPECT_EQ(entry.stack, kNoStack);
  // A clock that is slewed meanwhile may differ by a little.
  EXPECT_GE(entry.time_us, before - 1000);
  EXPECT_LE(entry.time_us, after + 1000);
}

TEST(HistoryRing, PoolIdsComeBackAsTheyWere) {
  const auto back = [](std::uint64_t first, std::uint64_t second) { return decode_pool(encode_pool(first, second)); };
  EXPECT_EQ(back(0, 0), (std::pair<std::int64_t, std::int64_t>{0, 0}));
  EXPECT_EQ(back(5, 0), (std::pair<std::int64_t, std::int64_t>{5, 0}));
  EXPECT_EQ(back(0, 9), (std::pair<std::int64_t, std::int64_t>{0, 9}));
}

}  // namespace
}  // namespace cistern
