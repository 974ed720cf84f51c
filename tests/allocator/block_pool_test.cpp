#include "allocator/block_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <vector>

#include "allocator/block_arena.h"

namespace cistern {
namespace {

// Made-up addresses: the index touches no memory but its own.
class BlockPoolTest : public ::testing::Test {
 protected:
  explicit BlockPoolTest(PoolKind kind = PoolKind::small) : pool_(kind, trees_) {}
  Block* make(std::uint64_t address, std::size_t bytes) {
    arena_.reserve(1);
    Block* block = arena_.take_block();
    block->address = address;
    block->bytes = bytes;
    return block;
  }
  // Few sizes, so that many are equal, and any up to 8 TiB.
  static std::size_t any_size(std::mt19937_64& random) {
    if (random() % 2 == 0) return 512 * (1 + random() % 64);
    return 512 * (1 + random() % (std::size_t{1} << (random() % 34)));
  }
  using Expected = std::set<std::pair<std::size_t, std::uint64_t>>;
  static std::optional<Expected::value_type> found(const Block* block) {
    if (block == nullptr) return std::nullopt;
    return Expected::value_type(block->bytes, block->address);
  }
  static std::optional<Expected::value_type> from(const Expected& expected, Expected::iterator place) {
    return place == expected.end() ? std::nullopt : std::optional(*place);
  }

  BlockArena arena_;
  BlockPool::Trees trees_{};
  BlockPool pool_;
};

class EitherBlockPoolTest : public BlockPoolTest, public ::testing::WithParamInterface<PoolKind> {
 protected:
  EitherBlockPoolTest() : BlockPoolTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(BlockPool, EitherBlockPoolTest, ::testing::Values(PoolKind::small, PoolKind::large));

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

TEST_P(EitherBlockPoolTest, AgreesWithASortedSetOverRandomInsertionsAndRemovals) {
  std::mt19937_64 random(7);
  Expected expected;
  std::vector<Block*> inside;
  std::uint64_t next_address = 512;
  for (int i = 0; i < 20000; ++i) {
    if (inside.empty() || random() % 5 < 3) {
      Block* block = make((next_address += 512) ^ (random() % 16 << 40), any_size(random));
      pool_.insert(block);
      expected.insert({block->bytes, block->address});
      inside.push_back(block);
    } else {
      std::swap(inside[random() % inside.size()], inside.back());
      Block* block = inside.back();
      inside.pop_back();
      pool_.erase(block);
      ASSERT_FALSE(pool_.contains(block));
      expected.erase({block->bytes, block->address});
      arena_.give_back(block);
    }
    const std::size_t wanted = any_size(random) - random() % 512;
    ASSERT_EQ(found(pool_.best_fit(wanted)), from(expected, expected.lower_bound({wanted, 0})));
    ASSERT_EQ(pool_.size(), expected.size());
    if (inside.empty()) continue;
    const Block* any = inside[random() % inside.size()];
    ASSERT_TRUE(pool_.contains(any));
    ASSERT_EQ(found(pool_.after(any)), from(expected, expected.upper_bound({any->bytes, any->address})));
    ASSERT_EQ(found(pool_.largest()), *expected.rbegin());
    if (i % 512 != 0) continue;
    ASSERT_NO_THROW(pool_.check());
    std::vector<Expected::value_type> visited;
    pool_.for_each([&](const Block* block) { visited.emplace_back(block->bytes, block->address); });
    ASSERT_EQ(visited, std::vector<Expected::value_type>(expected.begin(), expected.end()));
  }
}

// The lowest block of many is taken and given back, as a loop of one size does.
TEST_F(BlockPoolTest, ManyBlocksOfOneSizeAreServedByAddress) {
  for (std::uint64_t i = 0; i < 1000; ++i) pool_.insert(make(512 * (1 + i * 7919 % 1000), 8192));
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Block* first = pool_.best_fit(4096);
    ASSERT_EQ(first->address, 512 * (1 + i));
    for (int again = 0; again < 3; ++again) {
      pool_.erase(first);
      Block* second = pool_.best_fit(4096);
      ASSERT_EQ(second == nullptr ? 0 : second->address, i == 999 ? 0 : 512 * (2 + i));
      pool_.insert(first);
      ASSERT_EQ(pool_.best_fit(4096), first);
    }
    pool_.erase(first);
  }
  EXPECT_TRUE(pool_.empty());
}

TEST_F(BlockPoolTest, ALowerBlockThatComesLaterServesFromThenOn) {
  Block* high = make(9000, 8192);
  Block* low = make(1000, 8192);
  pool_.insert(high);
  pool_.insert(make(20000, 512));
  EXPECT_EQ(pool_.best_fit(4096), high);
  pool_.insert(low);
  EXPECT_EQ(pool_.best_fit(4096), low);
  pool_.insert(make(30000, 512));
  EXPECT_EQ(pool_.best_fit(4096), low);
  pool_.check();
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
