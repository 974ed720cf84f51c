// Chunks that are filled, shared and overwritten at once: every order of two threads' steps, to a bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "stats/history_ring.h"
#include "tests/allocator/every_order.h"
#include "tests/history/watched_chunks.h"
#include "tests/property.h"

namespace cistern {
namespace {

using testing::DelayedHold;
using testing::DelayingProcessors;
using testing::in_every_order;
using testing::let_pass;
using Ring = BasicHistoryRing<DelayingProcessors>;

// In pieces, between which the other thread may go on.
void fill(HistoryEntry& entry, std::uint64_t number) {
  entry = {};
  entry.ticks = number;
  let_pass();
  entry.size = static_cast<std::int64_t>(number);
}
bool is_whole(const HistoryEntry& entry) { return entry.ticks != 0 && entry.size == std::int64_t(entry.ticks); }

struct ChunkInUse {
  testing::WatchedChunks chunks;
  DelayedHold chunk = DelayedHold::make();
  DelayedHold snapshot;
  DelayedHold::Chunk* claimed = nullptr;
  DelayingProcessors::Atomic<int> stored{0};
  bool is_read = false;
  int broken = 0;
};
std::unique_ptr<ChunkInUse> chunk_that_is_filled() {
  auto its = std::make_unique<ChunkInUse>();
  its->claimed = its->chunk.begin_filling();
  return its;
}

TEST(HistoryChunkInterleaving, WhoAwaitsTheFillersComesBehindThem) {
  const std::size_t orders = in_every_order(
      kSanitized ? 4 : 8, chunk_that_is_filled,
      [](ChunkInUse& its) {
        fill(its.claimed->entries[0], 1);
        its.stored.store(1, std::memory_order_relaxed);
        DelayedHold::end_filling(its.claimed);
      },
      [](ChunkInUse& its) {
        its.chunk.await_fillers();
        if (!is_whole(its.chunk.entries()[0]) || its.stored.load(std::memory_order_relaxed) != 1) ++its.broken;
        fill(its.chunk.entries()[0], 2);
      },
      [](ChunkInUse& its, const std::string& order) {
        EXPECT_EQ(its.broken, 0) << order;
        EXPECT_EQ(its.chunk.entries()[0].ticks, 2U) << order;
        EXPECT_EQ(its.chunk.entries()[0].size, 2) << order;
      });
  EXPECT_GT(orders, 10U);
}

TEST(HistoryChunkInterleaving, FillersThatComeAndGoAtOnceAreCounted) {
  in_every_order(
      kSanitized ? 4 : 8, chunk_that_is_filled, [](ChunkInUse& its) { DelayedHold::end_filling(its.claimed); },
      [](ChunkInUse& its) {
        DelayedHold::Chunk* const own = its.chunk.begin_filling();
        DelayedHold::end_filling(own);
      },
      [](ChunkInUse& its, const std::string& order) {
        EXPECT_EQ(its.claimed->fillers.load(std::memory_order_relaxed), 0U) << order;
      });
}

// A snapshot reads, and goes; the ring writes where nobody else does, and goes, and another snapshot comes.
TEST(HistoryChunkInterleaving, TheLastHolderFreesIt) {
  const std::size_t orders = in_every_order(
      kSanitized ? 4 : 8,
      [] {
        auto its = std::make_unique<ChunkInUse>();
        its->snapshot = its->chunk.share();
        its->is_read = true;
        return its;
      },
      [](ChunkInUse& its) {
        let_pass();
        if (!its.chunks.is_live(its.snapshot.entries())) ++its.broken;
        its.is_read = false;
        its.snapshot.reset();
      },
      [](ChunkInUse& its) {
        if (!its.chunk.is_shared() && its.is_read) ++its.broken;
        DelayedHold another = its.chunk.share();
        its.chunk.reset();
        let_pass();
        if (!its.chunks.is_live(another.entries())) ++its.broken;
      },
      [](ChunkInUse& its, const std::string& order) {
        EXPECT_EQ(its.broken, 0) << order;
        EXPECT_EQ(its.chunks.live(), 0U) << order;
        EXPECT_EQ(its.chunks.wrong_unmaps(), 0) << order;
      });
  EXPECT_GT(orders, 10U);
}

// A ring of two chunks whose first one a snapshot shares, and is about to be overwritten.
struct SharingWorld {
  SharingWorld() {
    for (std::uint64_t number = 1; number <= kEntries; ++number) fill(*ring.next(spare), number);
    cut.reserve(kEntries);
    ring.cut_to(cut);
  }
  [[nodiscard]] bool is_as_it_was() const {
    std::uint64_t number = 0;
    bool is = true;
    cut.for_each([&](const HistoryEntry& entry) { is = is && entry.ticks == ++number && is_whole(entry); });
    return is && number == kEntries;
  }
  static constexpr std::uint64_t kEntries = Ring::kChunk + 1;

  testing::WatchedChunks chunks;
  BasicSpareChunk<DelayingProcessors> spare;
  Ring ring{kEntries};
  Ring::Cut cut;
  int broken = 0;
};

TEST(HistoryRingInterleaving, WhatASnapshotReadsStaysWhileTheRingGoesOn) {
  const std::size_t orders = in_every_order(
      kSanitized ? 3 : 6, [] { return std::make_unique<SharingWorld>(); },
      [](SharingWorld& its) {
        for (int i = 0; i < 2; ++i) {
          if (!its.is_as_it_was()) ++its.broken;
          let_pass();
        }
        its.cut = Ring::Cut();
      },
      [](SharingWorld& its) {
        its.spare.provide();
        for (std::uint64_t i = 1; i <= 2; ++i) fill(*its.ring.next(its.spare), SharingWorld::kEntries + i);
      },
      [](SharingWorld& its, const std::string& order) {
        EXPECT_EQ(its.broken, 0) << order;
        EXPECT_EQ(its.ring.at(0).ticks, SharingWorld::kEntries + 1) << order;
        EXPECT_EQ(its.ring.at(2).ticks, 3U) << order;
        static_cast<void>(its.spare.take());
        EXPECT_EQ(its.chunks.live(), 2U) << order;
        EXPECT_EQ(its.chunks.wrong_unmaps(), 0) << order;
      });
  EXPECT_GT(orders, 10U);
}

// Two streams that write to one ring of three, and who then has the heap's lock, which has that of each stream.
struct ClaimingWorld {
  // As StreamHits::write_staged_alone does.
  void write_of_own(std::uint64_t first, std::size_t count) {
    const std::lock_guard lock(stream);
    Ring::Claim claim;
    {
      const std::lock_guard lock_of_places(places);
      claim = ring.claim(count);
      if (claim.first == nullptr)
        for (std::size_t i = 0; i < count; ++i) fill(*ring.next(spare), first + i);
    }
    if (claim.first == nullptr) return;
    for (std::size_t i = 0; i < count; ++i) fill(claim.first[i], first + i);
    DelayedHold::end_filling(claim.chunk);
  }
  void write_of_other(std::uint64_t first, std::size_t count) {
    const std::lock_guard lock(places);
    for (std::size_t i = 0; i < count; ++i) fill(*ring.next(spare), first + i);
  }
  void look() {
    const std::lock_guard lock(stream);
    cut.reserve(ring.size());
    ring.cut_to(cut);
  }

  testing::WatchedChunks chunks;
  BasicSpareChunk<DelayingProcessors> spare;
  Ring ring{3};
  Ring::Cut cut;
  DelayingProcessors::Mutex stream;
  DelayingProcessors::Mutex places;
};

TEST(HistoryRingInterleaving, ASnapshotHoldsWhatIsFilledAlone) {
  const std::size_t orders = in_every_order(
      kSanitized ? 3 : 6, [] { return std::make_unique<ClaimingWorld>(); },
      [](ClaimingWorld& its) { its.write_of_own(1, 2); },
      [](ClaimingWorld& its) {
        its.write_of_other(10, 2);
        its.look();
      },
      [](ClaimingWorld& its, const std::string& order) {
        std::vector<std::uint64_t> numbers;
        its.cut.for_each([&](const HistoryEntry& entry) {
          EXPECT_TRUE(is_whole(entry)) << order;
          numbers.push_back(entry.ticks);
        });
        const std::vector<std::vector<std::uint64_t>> possible{
            {10, 11}, {2, 10, 11}, {1, 10, 2}, {10, 11, 1}, {11, 1, 2}};
        EXPECT_EQ(std::count(possible.begin(), possible.end(), numbers), 1)
            << order << ": " << ::testing::PrintToString(numbers);
      });
  EXPECT_GT(orders, 100U);
}

}  // namespace
}  // namespace cistern
