// Chunks that are filled, shared and overwritten at once: every order of two threads' steps, to a bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "stats/history_ring.h"
#include "tests/allocator/every_order.h"
#include "tests/history/watched_chunks.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayedHold;
using testing::DelayingProcessors;
using testing::in_every_order;
using testing::let_pass;
using DelayedRing = BasicHistoryRing<DelayingProcessors>;

// In pieces, between which the other thread may go on.
void fill_in_pieces(HistoryEntry& entry, std::uint64_t number) {
  entry = {};
  entry.ticks = number;
  let_pass();
  entry.size = static_cast<std::int64_t>(number);
}
bool is_whole(const HistoryEntry& entry) { return entry.ticks != 0 && entry.size == std::int64_t(entry.ticks); }

struct FilledWorld {
  testing::WatchedChunks chunks;
  DelayedHold chunk = DelayedHold::make();
  DelayedHold snapshot;
  DelayedHold::Chunk* claimed = nullptr;
  DelayingProcessors::Atomic<int> stored{0};
  DelayingProcessors::Atomic<bool> is_read{false};
  int broken = 0;
};
std::unique_ptr<FilledWorld> world_that_is_filled() {
  auto world = std::make_unique<FilledWorld>();
  world->claimed = world->chunk.begin_filling();
  return world;
}

TEST(HistoryChunkInterleaving, WhoAwaitsTheFillersComesBehindThem) {
  in_every_order(
      8, world_that_is_filled,
      [](FilledWorld& world) {
        fill_in_pieces(world.claimed->entries[0], 1);
        world.stored.store(1, std::memory_order_relaxed);
        DelayedHold::end_filling(world.claimed);
      },
      [](FilledWorld& world) {
        world.chunk.await_fillers();
        if (!is_whole(world.chunk.entries()[0]) || world.stored.load(std::memory_order_relaxed) != 1) ++world.broken;
        fill_in_pieces(world.chunk.entries()[0], 2);
      },
      [](FilledWorld& world, const Choices& order) {
        EXPECT_EQ(world.broken, 0) << order;
        EXPECT_EQ(world.chunk.entries()[0].ticks, 2U) << order;
        EXPECT_EQ(world.chunk.entries()[0].size, 2) << order;
      });
}

TEST(HistoryChunkInterleaving, FillersThatComeAndGoAtOnceAreCounted) {
  in_every_order(
      8, world_that_is_filled, [](FilledWorld& world) { DelayedHold::end_filling(world.claimed); },
      [](FilledWorld& world) {
        DelayedHold::Chunk* const own = world.chunk.begin_filling();
        DelayedHold::end_filling(own);
      },
      [](FilledWorld& world, const Choices& order) {
        EXPECT_EQ(world.claimed->fillers.load(std::memory_order_relaxed), 0U) << order;
      });
}

// A snapshot reads, and goes; the ring writes where nobody else does, and goes, and another snapshot comes.
TEST(HistoryChunkInterleaving, TheLastHolderFreesIt) {
  in_every_order(
      8,
      [] {
        auto world = std::make_unique<FilledWorld>();
        world->snapshot = world->chunk.share();
        world->is_read.store(true, std::memory_order_relaxed);
        return world;
      },
      [](FilledWorld& world) {
        let_pass();
        if (!world.chunks.is_live(world.snapshot.entries())) ++world.broken;
        world.is_read.store(false, std::memory_order_relaxed);
        world.snapshot.reset();
      },
      [](FilledWorld& world) {
        if (!world.chunk.is_shared() && world.is_read.load(std::memory_order_relaxed)) ++world.broken;
        DelayedHold another = world.chunk.share();
        world.chunk.reset();
        let_pass();
        if (!world.chunks.is_live(another.entries())) ++world.broken;
      },
      [](FilledWorld& world, const Choices& order) {
        EXPECT_EQ(world.broken, 0) << order;
        EXPECT_EQ(world.chunks.live(), 0U) << order;
        EXPECT_EQ(world.chunks.wrong_unmaps(), 0) << order;
      });
}

// Whatever another holder did with it is over when the last one gives its memory back.
TEST(HistoryChunkInterleaving, WhoFreesItComesBehindAllThatHeldIt) {
  in_every_order(
      8,
      [] {
        auto world = std::make_unique<FilledWorld>();
        world->snapshot = world->chunk.share();
        world->chunks.when_unmapped = [seen = world.get()] {
          if (seen->stored.load(std::memory_order_relaxed) != 2) ++seen->broken;
        };
        return world;
      },
      [](FilledWorld& world) {
        world.stored.fetch_add(1, std::memory_order_relaxed);
        world.snapshot.reset();
      },
      [](FilledWorld& world) {
        world.stored.fetch_add(1, std::memory_order_relaxed);
        world.chunk.reset();
      },
      [](FilledWorld& world, const Choices& order) {
        EXPECT_EQ(world.broken, 0) << order;
        EXPECT_EQ(world.chunks.live(), 0U) << order;
      });
}

// A ring of two chunks whose first one a snapshot shares, and is about to be overwritten.
struct SharingWorld {
  SharingWorld() {
    for (std::uint64_t number = 1; number <= kEntries; ++number) fill_in_pieces(*ring.next(spare), number);
    cut.reserve(kEntries);
    ring.cut_to(cut);
  }
  [[nodiscard]] bool is_as_it_was() const {
    std::uint64_t number = 0;
    bool is = true;
    cut.for_each([&](const HistoryEntry& entry) { is = is && entry.ticks == ++number && is_whole(entry); });
    return is && number == kEntries;
  }
  static constexpr std::uint64_t kEntries = DelayedRing::kChunk + 1;

  testing::WatchedChunks chunks;
  BasicSpareChunk<DelayingProcessors> spare;
  DelayedRing ring{kEntries};
  DelayedRing::Cut cut;
  int broken = 0;
};

TEST(HistoryRingInterleaving, WhatASnapshotReadsStaysWhileTheRingGoesOn) {
  in_every_order(
      6, [] { return std::make_unique<SharingWorld>(); },
      [](SharingWorld& world) {
        for (int i = 0; i < 2; ++i) {
          if (!world.is_as_it_was()) ++world.broken;
          let_pass();
        }
        world.cut = DelayedRing::Cut();
      },
      [](SharingWorld& world) {
        world.spare.provide();
        for (std::uint64_t i = 1; i <= 2; ++i)
          fill_in_pieces(*world.ring.next(world.spare), SharingWorld::kEntries + i);
      },
      [](SharingWorld& world, const Choices& order) {
        EXPECT_EQ(world.broken, 0) << order;
        EXPECT_EQ(world.ring.at(0).ticks, SharingWorld::kEntries + 1) << order;
        EXPECT_EQ(world.ring.at(2).ticks, 3U) << order;
        static_cast<void>(world.spare.take());
        EXPECT_EQ(world.chunks.live(), 2U) << order;
        EXPECT_EQ(world.chunks.wrong_unmaps(), 0) << order;
      });
}

// Two streams that write to one ring of three, and who then has the heap's lock, which has that of each stream.
struct ClaimingWorld {
  // As StreamHits::write_staged_alone does.
  void write_of_own(std::uint64_t first, std::size_t count) {
    const std::lock_guard lock(stream);
    DelayedRing::Claim claim;
    {
      const std::lock_guard lock_of_places(places);
      claim = ring.claim(count);
      if (claim.first == nullptr)
        for (std::size_t i = 0; i < count; ++i) fill_in_pieces(*ring.next(spare), first + i);
    }
    if (claim.first == nullptr) return;
    for (std::size_t i = 0; i < count; ++i) fill_in_pieces(claim.first[i], first + i);
    DelayedHold::end_filling(claim.chunk);
  }
  void write_of_other(std::uint64_t first, std::size_t count) {
    const std::lock_guard lock(places);
    for (std::size_t i = 0; i < count; ++i) fill_in_pieces(*ring.next(spare), first + i);
  }
  void look() {
    const std::lock_guard lock(stream);
    cut.reserve(ring.size());
    ring.cut_to(cut);
  }

  testing::WatchedChunks chunks;
  BasicSpareChunk<DelayingProcessors> spare;
  DelayedRing ring{3};
  DelayedRing::Cut cut;
  DelayingProcessors::Mutex stream;
  DelayingProcessors::Mutex places;
};

TEST(HistoryRingInterleaving, ASnapshotHoldsWhatIsFilledAlone) {
  const std::size_t orders = in_every_order(
      6, [] { return std::make_unique<ClaimingWorld>(); }, [](ClaimingWorld& world) { world.write_of_own(1, 2); },
      [](ClaimingWorld& world) {
        world.write_of_other(10, 2);
        world.look();
      },
      [](ClaimingWorld& world, const Choices& order) {
        std::vector<std::uint64_t> numbers;
        world.cut.for_each([&](const HistoryEntry& entry) {
          EXPECT_TRUE(is_whole(entry)) << order;
          numbers.push_back(entry.ticks);
        });
        const std::vector<std::vector<std::uint64_t>> possible{{10, 11}, {2, 10, 11}, {11, 1, 2}};
        EXPECT_EQ(std::count(possible.begin(), possible.end(), numbers), 1)
            << order << ": " << ::testing::PrintToString(numbers);
      });
  EXPECT_GT(orders, 100U);
}

}  // namespace
}  // namespace cistern
