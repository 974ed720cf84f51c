// A snapshot shares most of a history with the ring that goes on: what it holds stays as it was.

#include "stats/history.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace cistern {
namespace {

constexpr auto kChunk = static_cast<std::int64_t>(HistoryRing::kChunk);

struct Writer {
  explicit Writer(std::size_t entries) {
    HistoryOptions options;
    options.context = HistoryContext::none;
    options.max_entries = entries;
    const DeviceHistory::RingSize size = history.ring_for(options);
    static_cast<void>(history.set_options(options, HistoryRing(size.capacity, size.prepared)));
  }
  void write(std::int64_t events) {
    for (const std::int64_t end = next + events; next < end; ++next) {
      TracePoint at;
      at.size = next;
      history.provide();
      history.add(TraceAction::alloc, at);
    }
  }
  DeviceHistory history;
  std::int64_t next = 0;
};

std::vector<std::int64_t> sizes_in(const DeviceHistory::Copy& copy) {
  std::vector<std::int64_t> sizes;
  copy.entries.for_each([&sizes](const HistoryEntry& entry) { sizes.push_back(entry.size); });
  return sizes;
}

std::vector<std::int64_t> from_to(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = first; i < last; ++i) all.push_back(i);
  return all;
}

TEST(HistorySharing, WhatACutHoldsStaysWhateverIsWrittenAfterwards) {
  // Cuts in the middle of a chunk and at its ends, of rings that overwrite and of others.
  for (const std::int64_t capacity : {std::int64_t{1}, kChunk - 1, kChunk, 3 * kChunk, 3 * kChunk + 100})
    for (const std::int64_t before :
         {std::int64_t{1}, std::int64_t{77}, kChunk, 2 * kChunk + 5, 3 * kChunk + 100, 5 * kChunk, 7 * kChunk + 1000}) {
      Writer writer(static_cast<std::size_t>(capacity));
      writer.write(before);
      DeviceHistory::Copy first;
      writer.history.copy_to(first);
      writer.write(kChunk / 2);
      DeviceHistory::Copy second;
      writer.history.copy_to(second);
      writer.write(2 * capacity + kChunk);
      const auto newest = [capacity](std::int64_t end) {
        return from_to(std::max<std::int64_t>(0, end - capacity), end);
      };
      EXPECT_EQ(sizes_in(first), newest(before)) << "capacity " << capacity << ", before " << before;
      EXPECT_EQ(sizes_in(second), newest(before + kChunk / 2)) << "capacity " << capacity << ", before " << before;
      DeviceHistory::Copy last;
      writer.history.copy_to(last);
      EXPECT_EQ(sizes_in(last), newest(writer.next));
      EXPECT_EQ(writer.history.info().lost, 0U);
    }
}

// What is there of the chunk that the cut has copied. Requires: the first one.
std::ptrdiff_t pages_in(const DeviceHistory::Copy& copy) {
  std::uintptr_t first = 0;
  copy.entries.for_each([&first](const HistoryEntry& entry) {
    if (first == 0) first = reinterpret_cast<std::uintptr_t>(&entry);
  });
  constexpr std::size_t kPageBytes = 4096;
  std::array<unsigned char, sizeof(HistoryChunk) / kPageBytes + 1> is_there{};
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first / kPageBytes * kPageBytes), sizeof(HistoryChunk), is_there.data()),
            0);
  return std::count_if(is_there.begin(), is_there.end(), [](unsigned char page) { return (page & 1) != 0; });
}

TEST(HistorySharing, ACutOfFewEntriesTakesLittleMemory) {
  Writer writer(kChunk);
  writer.write(10);
  DeviceHistory::Copy few;
  writer.history.copy_to(few);
  EXPECT_LE(pages_in(few), 2);
  writer.write(kChunk - 20);
  DeviceHistory::Copy many;
  writer.history.copy_to(many);
  EXPECT_GE(pages_in(many), 24);
}

TEST(HistorySharing, ACutOutlivesItsHistory) {
  DeviceHistory::Copy copy;
  {
    Writer writer(static_cast<std::size_t>(4 * kChunk));
    writer.write(6 * kChunk);
    writer.history.copy_to(copy);
  }
  EXPECT_EQ(sizes_in(copy), from_to(2 * kChunk, 6 * kChunk));
}

TEST(HistorySharing, OptionsMayChangeWhileACutIsRead) {
  Writer writer(static_cast<std::size_t>(3 * kChunk));
  writer.write(2 * kChunk + 10);
  DeviceHistory::Copy copy;
  writer.history.copy_to(copy);
  for (const std::int64_t entries : {kChunk, 9 * kChunk}) {
    HistoryOptions options = writer.history.options();
    options.max_entries = static_cast<std::size_t>(entries);
    const DeviceHistory::RingSize size = writer.history.ring_for(options);
    static_cast<void>(writer.history.set_options(options, HistoryRing(size.capacity, size.prepared)));
    writer.write(10 * kChunk);
  }
  EXPECT_EQ(sizes_in(copy), from_to(0, 2 * kChunk + 10));
}

// For ThreadSanitizer: the reader has no lock.
TEST(HistorySharing, ACutIsReadWhileTheRingIsWritten) {
  Writer writer(static_cast<std::size_t>(3 * kChunk + 100));
  writer.write(5 * kChunk + 50);
  for (int round = 0; round < 20; ++round) {
    std::optional<DeviceHistory::Copy> copy(std::in_place);
    writer.history.copy_to(*copy);
    const std::int64_t end = writer.next;
    std::atomic<bool> whole{false};
    std::thread reader([&] {
      whole = sizes_in(*copy) == from_to(end - (3 * kChunk + 100), end);
      copy.reset();
    });
    writer.write(4 * kChunk + 33);
    reader.join();
    ASSERT_TRUE(whole) << round;
  }
}

}  // namespace
}  // namespace cistern
