// Places of the ring that are claimed under a lock and filled without it.

#include "stats/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/history/entries_of.h"
#include "tests/property.h"

namespace cistern {
namespace {

constexpr std::int64_t kStream = 7;
constexpr std::uint64_t kAlloc = static_cast<std::uint64_t>(TraceAction::alloc);

void use(DeviceHistory& history, std::size_t entries, bool clears = false) {
  HistoryOptions options;
  options.context = HistoryContext::none;
  options.max_entries = entries;
  options.clear_history = clears;
  const DeviceHistory::RingSize size = history.ring_for(options);
  DeviceHistory::Retired retired = history.set_options(options, HistoryRing(size.capacity, size.prepared));
  while (history.let_go_some(retired)) {
  }
}

// Sizes from `first` on, and the same numbers as addresses.
std::vector<StagedEvent> events_from(const DeviceHistory& history, std::int64_t first, std::size_t count = 64) {
  std::vector<StagedEvent> events;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t number = first + static_cast<std::int64_t>(i);
    events.push_back(DeviceHistory::staged(kAlloc, static_cast<std::uint64_t>(number), number, history.clock().now()));
  }
  return events;
}

HistoryRing::Claim claim_for(DeviceHistory& history, const std::vector<StagedEvent>& events) {
  return history.claim(events.size(), DeviceHistory::entries_of(events));
}

TEST(ClaimedPlaces, HoldWhatWasStagedAsIfItWereAdded) {
  DeviceHistory added;
  DeviceHistory filled;
  std::vector<StagedEvent> events = events_from(added, 100, 3);
  events[1] = DeviceHistory::staged(kFreed, 100, 100, added.clock().now());
  for (DeviceHistory* history : {&added, &filled}) use(*history, 10);
  added.add(events, kStream);
  const HistoryRing::Claim claim = claim_for(filled, events);
  ASSERT_NE(claim.first, nullptr);
  DeviceHistory::fill(claim, events, kStream);
  EXPECT_EQ(filled.info().recorded, added.info().recorded);
  EXPECT_EQ(filled.info().entries, 4U);
  const std::vector<TraceEntry> expected = entries_of(added);
  const std::vector<TraceEntry> found = entries_of(filled);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].action, expected[i].action);
    EXPECT_EQ(found[i].address, expected[i].address);
    EXPECT_EQ(found[i].size, expected[i].size);
    EXPECT_EQ(found[i].stream, kStream);
    EXPECT_EQ(found[i].stack, kNoStack);
  }
}

TEST(ClaimedPlaces, AreOfOneChunk) {
  DeviceHistory history;
  use(history, 100);
  EXPECT_EQ(claim_for(history, events_from(history, 0, 101)).first, nullptr);
  const std::vector<StagedEvent> events = events_from(history, 0, 60);
  DeviceHistory::fill(claim_for(history, events), events, kStream);
  EXPECT_EQ(claim_for(history, events).first, nullptr) << "40 are left";
  history.add(events, kStream);
  EXPECT_EQ(history.info().entries, 100U);
}

TEST(ClaimedPlaces, AreNotGivenWhereSomethingIsCountedWithEntries) {
  DeviceHistory history;
  use(history, 1000);
  const std::vector<StagedEvent> events = events_from(history, 0);
  history.use_text(history.prepare_text(share_text("a step")));
  history.add(events, kStream);
  EXPECT_EQ(claim_for(history, events).first, nullptr) << "entries carry the text";
  history.use_text(kNoText);
  EXPECT_EQ(claim_for(history, events).first, nullptr) << "what is overwritten lets it go";
  use(history, 1000, true);
  const HistoryRing::Claim claim = claim_for(history, events);
  ASSERT_NE(claim.first, nullptr) << "nothing is held any more";
  DeviceHistory::fill(claim, events, kStream);
  history.check({}, 0);
}

TEST(ClaimedPlaces, AreNotGivenWhereAnActionIsSkipped) {
  DeviceHistory history;
  HistoryOptions options;
  options.context = HistoryContext::none;
  options.skip_actions = {TraceAction::free_completed};
  static_cast<void>(history.set_options(options, HistoryRing(100)));
  EXPECT_EQ(claim_for(history, events_from(history, 0)).first, nullptr);
}

// One thread claims places and fills them only when another, that goes round the ring, must have come to them.
TEST(ClaimedPlaces, NobodyOvertakesWhoFillsThem) {
  constexpr std::int64_t kEntries = 2 * 2048;
  constexpr std::int64_t kLast = 3 * kEntries;
  DeviceHistory history;
  use(history, kEntries);
  const std::vector<StagedEvent> late = events_from(history, 1'000'000);
  const HistoryRing::Claim claim = claim_for(history, late);
  ASSERT_NE(claim.first, nullptr);
  std::atomic<std::int64_t> written{64};
  std::thread writer([&] {
    TracePoint at;
    for (std::int64_t i = 64; i < kLast; ++i) {
      at.size = i;
      history.add(TraceAction::alloc, at);
      written.store(i + 1);
    }
  });
  while (written < kEntries) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  DeviceHistory::fill(claim, late, kStream);
  writer.join();
  std::vector<std::int64_t> sizes;
  for (const TraceEntry& entry : entries_of(history)) sizes.push_back(entry.size);
  ASSERT_EQ(sizes.size(), static_cast<std::size_t>(kEntries));
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes.front(), kLast - kEntries);
  EXPECT_EQ(sizes.back(), kLast - 1);
}

TEST(ClaimedPlaces, ThreadsThatFillTheirsAtOnceLoseNothing) {
  constexpr std::size_t kThreads = 3;
  const int rounds = kSanitized ? 100 : 1000;
  DeviceHistory history;
  use(history, 3 * 2048);
  std::mutex mutex;
  std::array<std::thread, kThreads> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads[t] = std::thread([&, t] {
      for (int round = 0; round < rounds; ++round) {
        const auto first = static_cast<std::int64_t>(1 + (t * 10'000 + static_cast<std::size_t>(round)) * 64);
        const std::vector<StagedEvent> events = events_from(history, first);
        HistoryRing::Claim claim;
        {
          const std::lock_guard lock(mutex);
          claim = claim_for(history, events);
          if (claim.first == nullptr) history.add(events, kStream);
        }
        if (claim.first != nullptr) DeviceHistory::fill(claim, events, kStream);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(history.info().recorded, kThreads * static_cast<std::size_t>(rounds) * 64);
  const std::vector<TraceEntry> entries = entries_of(history);
  EXPECT_EQ(entries.size(), 3U * 2048);
  for (const TraceEntry& entry : entries) ASSERT_EQ(entry.address, static_cast<std::uint64_t>(entry.size));
  history.check({}, 0);
}

}  // namespace
}  // namespace cistern
