// The chunk that is brought while no lock is held: every order of two threads' steps, to a bound.
#include "stats/spare_chunk.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/allocator/every_order.h"
#include "tests/history/watched_chunks.h"
#include "tests/races/choices.h"

namespace cistern {
namespace {

using testing::DelayedHold;
using testing::in_every_order;

struct SpareWorld {
  testing::WatchedChunks chunks;
  BasicSpareChunk<testing::DelayingProcessors> spare;
  std::vector<DelayedHold> taken;
  int shared = 0;
  int unwanted = 0;  // chunks that came where none was wanted

  // As a ring that needs one; where none was brought it maps one itself, which is left out.
  void take() {
    DelayedHold chunk = spare.take();
    if (!chunk) return;
    if (chunk.is_shared()) ++shared;
    taken.push_back(std::move(chunk));
  }
  // As where history is turned off.
  void turn_off() {
    static_cast<void>(spare.take());
    if (spare.take()) ++unwanted;
  }
};
std::unique_ptr<SpareWorld> new_spare_world() { return std::make_unique<SpareWorld>(); }
std::unique_ptr<SpareWorld> world_that_wants() {
  auto world = new_spare_world();
  world->spare.want();
  return world;
}

// Whatever came is held once: by the ring, or as the spare, which goes with its owner.
void expect_nothing_lost(SpareWorld& world, const Choices& order) {
  EXPECT_EQ(world.shared, 0) << order;
  EXPECT_EQ(world.unwanted, 0) << order;
  for (DelayedHold& chunk : world.taken) {
    EXPECT_TRUE(world.chunks.is_live(chunk.entries())) << order;
    EXPECT_FALSE(chunk.is_shared()) << order;
    for (const DelayedHold& other : world.taken)
      EXPECT_TRUE(&chunk == &other || chunk.entries() != other.entries()) << order;
  }
  const std::size_t held = world.taken.size();
  const bool has_spare = static_cast<bool>(world.spare.take());
  EXPECT_EQ(world.chunks.live(), held) << order << ", spare: " << has_spare;
  world.taken.clear();
  EXPECT_EQ(world.chunks.live(), 0U) << order;
  EXPECT_EQ(world.chunks.wrong_unmaps(), 0) << order;
}

constexpr int kSpareStops = 8;

TEST(SpareChunkInterleaving, WhatIsBroughtWhileTheRingTakesAndWantsIsHeldOnce) {
  const std::size_t orders = in_every_order(
      kSpareStops, world_that_wants, [](SpareWorld& world) { world.spare.provide(); },
      [](SpareWorld& world) {
        world.spare.want();  // again, as who cuts a snapshot does
        world.take();
        world.spare.want();
        world.spare.provide();  // by who takes the lock next
        world.take();
      },
      expect_nothing_lost);
  EXPECT_GT(orders, 100U);
}

TEST(SpareChunkInterleaving, WhatComesWhereHistoryWasTurnedOffGoes) {
  const std::size_t orders = in_every_order(
      kSpareStops, world_that_wants,
      [](SpareWorld& world) {
        world.spare.provide();
        world.spare.provide();
      },
      [](SpareWorld& world) { world.turn_off(); },
      [](SpareWorld& world, const Choices& order) {
        EXPECT_FALSE(world.spare.take()) << order << ": nobody wants one";
        expect_nothing_lost(world, order);
      });
  EXPECT_GT(orders, 20U);
}

TEST(SpareChunkInterleaving, TwoThatBringAtOnceBringOne) {
  in_every_order(
      kSpareStops, world_that_wants, [](SpareWorld& world) { world.spare.provide(); },
      [](SpareWorld& world) { world.spare.provide(); },
      [](SpareWorld& world, const Choices& order) {
        EXPECT_EQ(world.chunks.mapped(), 1U) << order;
        world.take();
        EXPECT_EQ(world.taken.size(), 1U) << order;
        expect_nothing_lost(world, order);
      });
}

}  // namespace
}  // namespace cistern
