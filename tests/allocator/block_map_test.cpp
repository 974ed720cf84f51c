#include "allocator/block_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace cistern {
namespace {

TEST(BlockMap, FindsOnlyExactAddresses) {
  BlockMap map;
  Block block;
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
      map.insert(address, block);
      expected[address] = block;
    } else {
      ASSERT_EQ(map.take(address), known->second);
      expected.erase(known);
    }
    ASSERT_EQ(map.size(), expected.size()) << "after " << i << " operations";
  }
}

// Several threads free the same address at once: exactly one must get the block.
TEST(BlockMap, OneOfSeveralTakersGetsTheBlock) {
  BlockMap map;
  Block block;
  constexpr int kAddresses = 2000;
  for (std::uint64_t i = 1; i <= kAddresses; ++i) map.insert(i * 512, &block);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 1; i <= kAddresses; ++i)
        if (map.take(i * 512) != nullptr) ++taken;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, kAddresses);
}

}  // namespace
}  // namespace cistern
