#include "allocator/block_map.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>
#include <vector>

namespace cistern {
namespace {

TEST(BlockMap, FindsOnlyExactAddresses) {
  BlockMap map;
  Block block;
  map.make_room();
  map.insert(0x7000'0000, &block);
  EXPECT_EQ(map.find(0x7000'0000), &block);
  EXPECT_EQ(map.find(0x7000'0001), nullptr);
  EXPECT_EQ(map.find(0x7000'0200), nullptr);
  EXPECT_EQ(map.take(0x7000'0000), &block);
  EXPECT_EQ(map.find(0x7000'0000), nullptr);
  EXPECT_EQ(map.take(0x7000'0000), nullptr);
}

TEST(BlockMap, AgreesWithAHashMapOverRandomInsertionsAndRemovals) {
  BlockMap map;
  std::unordered_map<std::uint64_t, Block*> expected;
  std::vector<Block> blocks(64);
  std::mt19937_64 random(11);
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t address = 512 * (1 + random() % 3000);
    const auto known = expected.find(address);
    ASSERT_EQ(map.find(address), known == expected.end() ? nullptr : known->second);
    if (known == expected.end()) {
      Block* block = &blocks[random() % blocks.size()];
      map.make_room();
      map.insert(address, block);
      expected[address] = block;
    } else {
      ASSERT_EQ(map.take(address), known->second);
      expected.erase(known);
    }
    ASSERT_EQ(map.size(), expected.size()) << "after " << i << " operations";
  }
}

}  // namespace
}  // namespace cistern
