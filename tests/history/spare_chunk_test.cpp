// The chunk that is brought while no lock is held: every order of two threads' steps, to a bound.
#include "stats/spare_chunk.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/allocator/every_order.h"
#include "tests/history/watched_chunks.h"
#include "tests/property.h"

namespace cistern {
namespace {

using testing::DelayedHold;
using testing::in_every_order;

struct ChunkThatComes {
  testing::WatchedChunks chunks;
  BasicSpareChunk<testing::DelayingProcessors> spare;
  std::vector<DelayedHold> taken;
  int unwanted = 0;  // chunks that came where none was wanted

  // As a ring that needs one; where none was brought it maps one itself, which is left out.
  void take() {
    if (DelayedHold chunk = spare.take()) taken.push_back(std::move(chunk));
  }
  // As where history is turned off.
  void turn_off() {
    static_cast<void>(spare.take());
    if (spare.take()) ++unwanted;
  }
};
std::unique_ptr<ChunkThatComes> new_chunk_that_comes() { return std::make_unique<ChunkThatComes>(); }
std::unique_ptr<ChunkThatComes> world_that_wants() {
  auto its = new_chunk_that_comes();
  its->spare.want();
  return its;
}

// Whatever came is held once: by the ring, or as the spare, which goes with its owner.
void expect_nothing_lost(ChunkThatComes& its, const std::string& order) {
  EXPECT_EQ(its.unwanted, 0) << order;
  for (DelayedHold& chunk : its.taken) {
    EXPECT_TRUE(its.chunks.is_live(chunk.entries())) << order;
    EXPECT_FALSE(chunk.is_shared()) << order;
    for (const DelayedHold& other : its.taken)
      EXPECT_TRUE(&chunk == &other || chunk.entries() != other.entries()) << order;
  }
  const std::size_t held = its.taken.size();
  const bool has_spare = static_cast<bool>(its.spare.take());
  EXPECT_EQ(its.chunks.live(), held) << order << ", spare: " << has_spare;
  its.taken.clear();
  EXPECT_EQ(its.chunks.live(), 0U) << order;
  EXPECT_EQ(its.chunks.wrong_unmaps(), 0) << order;
}

int stops() { return kSanitized ? 3 : 8; }

TEST(SpareChunkInterleaving, WhatIsBroughtWhileTheRingTakesAndWantsIsHeldOnce) {
  const std::size_t orders = in_every_order(
      stops(), world_that_wants, [](ChunkThatComes& its) { its.spare.provide(); },
      [](ChunkThatComes& its) {
        its.spare.want();  // again, as who cuts a snapshot does
        its.take();
        its.spare.want();
        its.spare.provide();  // by who takes the lock next
        its.take();
      },
      expect_nothing_lost);
  EXPECT_GT(orders, 100U);
}

TEST(SpareChunkInterleaving, WhatComesWhereHistoryWasTurnedOffGoes) {
  const std::size_t orders = in_every_order(
      stops(), world_that_wants,
      [](ChunkThatComes& its) {
        its.spare.provide();
        its.spare.provide();
      },
      [](ChunkThatComes& its) { its.turn_off(); },
      [](ChunkThatComes& its, const std::string& order) {
        EXPECT_FALSE(its.spare.take()) << order << ": nobody wants one";
        expect_nothing_lost(its, order);
      });
  EXPECT_GT(orders, 20U);
}

TEST(SpareChunkInterleaving, TwoThatBringAtOnceBringOne) {
  const std::size_t orders = in_every_order(
      stops(), world_that_wants, [](ChunkThatComes& its) { its.spare.provide(); },
      [](ChunkThatComes& its) { its.spare.provide(); },
      [](ChunkThatComes& its, const std::string& order) {
        EXPECT_EQ(its.chunks.mapped(), 1U) << order;
        its.take();
        EXPECT_EQ(its.taken.size(), 1U) << order;
        expect_nothing_lost(its, order);
      });
  EXPECT_GT(orders, 10U);
}

}  // namespace
}  // namespace cistern
