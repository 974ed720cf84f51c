#include "allocator/block_map.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <unordered_map>
#include <vector>

namespace cistern {
namespace {

Block block_at(std::uint64_t address) {
  Block block;
  block.address = address;
  return block;
}

TEST(BlockMap, FindsOnlyExactAddresses) {
  BlockMap map;
  Block block = block_at(0x7000'0000);
  EXPECT_EQ(map.find(block.address), nullptr);
  map.make_room();
  map.insert(&block);
  EXPECT_EQ(map.find(0x7000'0000), &block);
  EXPECT_EQ(map.find(0x7000'0001), nullptr);
  EXPECT_EQ(map.find(0x7000'0200), nullptr);
  map.erase(block.address);
  EXPECT_EQ(map.find(0x7000'0000), nullptr);
  EXPECT_EQ(map.size(), 0U);
}

// A stream's first request so asks for no table (StreamHeapArena).
TEST(BlockMap, HasRoomForTheFirstBlocksFromTheStart) {
  constexpr std::size_t kFirst = 56;
  BlockMap map;
  std::deque<Block> blocks;
  for (; map.has_room(); map.insert(&blocks.back())) blocks.push_back(block_at(512 * (blocks.size() + 1)));
  EXPECT_EQ(map.size(), kFirst);
  map.make_room();
  EXPECT_TRUE(map.has_room());
  for (Block& block : blocks) EXPECT_EQ(map.find(block.address), &block);
}

// Blocks that come and go at random addresses, `most` of them at one time, beside a standard map.
class ComingAndGoing {
 public:
  ComingAndGoing(BlockMap& map, std::size_t most) : map_(map), most_(most) {}

  template <class MakeRoom>
  void run(int steps, MakeRoom&& make_room) {
    for (int i = 0; i < steps; ++i) {
      Block& block = blocks_[random_() % blocks_.size()];
      const auto known = expected_.find(block.address);
      ASSERT_EQ(map_.find(block.address), known == expected_.end() ? nullptr : known->second);
      if (known != expected_.end()) {
        map_.erase(block.address);
        expected_.erase(known);
      } else if (expected_.size() < most_) {
        make_room();
        map_.insert(&block);
        expected_[block.address] = &block;
      }
      ASSERT_EQ(map_.size(), expected_.size()) << "after " << i << " steps";
    }
  }

 private:
  static std::vector<Block> blocks() {
    std::vector<Block> all(3000);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].address = 512 * (1 + i);
    return all;
  }

  BlockMap& map_;
  std::size_t most_;
  std::vector<Block> blocks_ = blocks();
  std::unordered_map<std::uint64_t, Block*> expected_;
  std::mt19937_64 random_{11};
};

TEST(BlockMap, AgreesWithAHashMapOverRandomInsertionsAndRemovals) {
  BlockMap map;
  ComingAndGoing(map, 3000).run(200000, [&] { map.make_room(); });
}

// As without host memory to grow.
TEST(BlockMap, FullToSevenEighthsItAgrees) {
  BlockMap map;
  map.reserve(1);
  std::size_t by_choice = 0;
  std::deque<Block> filling;
  for (; map.has_room(); ++by_choice) map.insert(&filling.emplace_back(block_at((1 << 30) + 512 * by_choice)));
  for (const Block& block : filling) map.erase(block.address);
  ComingAndGoing(map, 2 * by_choice * 7 / 8).run(200000, [] {});
}

// More than a bucket counts that passes them on: all are found, and who is not there is not.
TEST(BlockMap, ManyBlocksOfOneBucketAreFound) {
  constexpr std::size_t kBlocks = 600;
  BlockMap map;
  map.reserve(kBlocks);
  std::vector<Block> blocks;
  // The low bits of the hash in block_map.h that choose a bucket, of more than there are.
  for (std::uint64_t number = 1; blocks.size() < kBlocks; ++number)
    if ((number * 0x9e3779b97f4a7c15ULL >> 32 & 0xfff) == 0x123) blocks.push_back(block_at(number << 9));
  for (int times = 0; times < 2; ++times) {
    for (Block& block : blocks) map.insert(&block);
    for (Block& block : blocks) ASSERT_EQ(map.find(block.address), &block);
    for (std::size_t i = 0; i < kBlocks; i += 2) map.erase(blocks[i].address);
    for (std::size_t i = 0; i < kBlocks; ++i)
      ASSERT_EQ(map.find(blocks[i].address), i % 2 == 0 ? nullptr : &blocks[i]) << i;
    for (std::size_t i = 1; i < kBlocks; i += 2) map.erase(blocks[i].address);
    EXPECT_EQ(map.size(), 0U);
    EXPECT_EQ(map.find(blocks[0].address), nullptr);
  }
}

}  // namespace
}  // namespace cistern
