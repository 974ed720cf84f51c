#include "allocator/block_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <vector>

#include "allocator/block_arena.h"

namespace cistern {
namespace {

// Made-up addresses: the index touches no memory but its own.
class BlockPoolTest : public testing::Test {
 protected:
  Block* make(std::uint64_t address, std::size_t bytes) {
    arena_.reserve(1);
    Block* block = arena_.take_block();
    block->address = address;
    block->bytes = bytes;
    return block;
  }
  BlockArena arena_;
  BlockPool pool_;
};

TEST_F(BlockPoolTest, EmptyPoolHasNoFit) {
  EXPECT_TRUE(pool_.empty());
  EXPECT_EQ(pool_.best_fit(1), nullptr);
  EXPECT_EQ(pool_.largest(), nullptr);
}

TEST_F(BlockPoolTest, SmallestThatHoldsTheRequestAndLowestAddressAmongEquals) {
  Block* high = make(9000, 1024);
  Block* low = make(1000, 1024);
  Block* large = make(500, 4096);
  for (Block* block : {high, large, low}) pool_.insert(block);
  EXPECT_EQ(pool_.best_fit(512), low);
  EXPECT_EQ(pool_.best_fit(1024), low);
  EXPECT_EQ(pool_.best_fit(1025), large);
  EXPECT_EQ(pool_.best_fit(4097), nullptr);
  EXPECT_EQ(pool_.largest(), large);
  pool_.erase(low);
  EXPECT_EQ(pool_.best_fit(1024), high);
}

TEST_F(BlockPoolTest, AgreesWithASortedSetOverRandomInsertionsAndRemovals) {
  std::mt19937 random(7);
  std::set<std::pair<std::size_t, std::uint64_t>> expected;
  std::vector<Block*> inside;
  std::uint64_t next_address = 512;
  for (int i = 0; i < 20000; ++i) {
    if (inside.empty() || random() % 5 < 3) {
      Block* block = make(next_address += 512, 512 * (1 + random() % 64));
      pool_.insert(block);
      expected.insert({block->bytes, block->address});
      inside.push_back(block);
    } else {
      std::swap(inside[random() % inside.size()], inside.back());
      Block* block = inside.back();
      inside.pop_back();
      pool_.erase(block);
      expected.erase({block->bytes, block->address});
      arena_.give_back(block);
    }
    const std::size_t wanted = 512 * (1 + random() % 66);
    const auto fit = expected.lower_bound({wanted, 0});
    const Block* found = pool_.best_fit(wanted);
    ASSERT_EQ(found == nullptr, fit == expected.end());
    if (found != nullptr) {
      ASSERT_EQ(std::make_pair(found->bytes, found->address), *fit);
    }
    ASSERT_EQ(pool_.size(), expected.size());
    if (i % 512 == 0) {
      ASSERT_NO_THROW(pool_.check());
    }
  }
}

TEST_F(BlockPoolTest, CheckFindsABlockThatIsInUse) {
  Block* block = make(512, 512);
  pool_.insert(block);
  block->state = BlockState::active_allocated;
  EXPECT_THROW(pool_.check(), std::logic_error);
}

TEST_F(BlockPoolTest, CheckFindsASizeChangedBehindItsBack) {
  Block* small = make(512, 512);
  pool_.insert(small);
  pool_.insert(make(1024, 1024));
  small->bytes = 4096;
  EXPECT_THROW(pool_.check(), std::logic_error);
}

}  // namespace
}  // namespace cistern
