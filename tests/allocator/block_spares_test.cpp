// Records that are kept to be used again: blocks, and the nodes of uses.

#include "allocator/block_spares.h"

#include "allocator/use_nodes.h"

#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

namespace cistern {
namespace {

TEST(BlockSparesTest, ABlockThatIsTakenIsAsANewOne) {
  Block block;
  Segment segment;
  Block other;
  block.address = 512;
  block.bytes = 1024;
  block.requested = 1000;
  block.previous = &other;
  block.next = &other;
  block.segment = &segment;
  block.state = BlockState::active_allocated;
  block.oversize = true;
  block.tag = 7;
  block.has_uses = true;
  block.uses.push_front({});
  BlockSpares spares;
  spares.give(&block);
  EXPECT_EQ(spares.size(), 1U);
  ASSERT_EQ(spares.take(), &block);
  EXPECT_EQ(spares.size(), 0U);
  EXPECT_EQ(block.address, 0U);
  EXPECT_EQ(block.bytes, 0U);
  EXPECT_EQ(block.requested, 0U);
  EXPECT_EQ(block.previous, nullptr);
  EXPECT_EQ(block.next, nullptr);
  EXPECT_EQ(block.segment, nullptr);
  EXPECT_EQ(block.state, BlockState::inactive);
  EXPECT_FALSE(block.oversize);
  EXPECT_EQ(block.tag, kUntagged);
  EXPECT_FALSE(block.has_uses);
  EXPECT_TRUE(block.uses.empty());
}

TEST(BlockSparesTest, SomeMoveAndNoneIsLost) {
  std::array<Block, 5> blocks;
  BlockSpares spares;
  for (Block& block : blocks) spares.give(&block);
  BlockSpares others;
  spares.move_to(others, 3);
  EXPECT_EQ(spares.size(), 2U);
  EXPECT_EQ(others.size(), 3U);
  std::set<Block*> taken;
  for (BlockSpares* from : {&spares, &others})
    while (from->size() != 0) {
      Block* const block = from->take();
      EXPECT_EQ(block->next, nullptr) << "it is in no list";
      taken.insert(block);
    }
  EXPECT_EQ(taken.size(), blocks.size());
}

class UseNodesTest : public ::testing::Test {
 protected:
  void insert(int device) {
    StreamUse use;
    use.device = device;
    nodes_.insert(uses_, uses_.before_begin(), std::move(use));
  }
  [[nodiscard]] std::vector<int> devices() const {
    std::vector<int> found;
    for (const StreamUse& use : uses_) found.push_back(use.device);
    return found;
  }

  UseNodes nodes_;
  StreamUses uses_;
};

TEST_F(UseNodesTest, AUseIsPutBehindAnotherWhicheverNodeItHas) {
  insert(1);
  const StreamUse* const node = &uses_.front();
  insert(2);
  nodes_.take(uses_, uses_.begin());
  EXPECT_EQ(devices(), (std::vector<int>{2}));
  StreamUse use;
  use.device = 3;
  use.in_capture = true;
  const auto place = nodes_.insert(uses_, uses_.begin(), std::move(use));
  EXPECT_EQ(&*place, node) << "the node of the use that was over";
  EXPECT_TRUE(place->in_capture);
  EXPECT_EQ(devices(), (std::vector<int>{2, 3}));
  insert(4);
  EXPECT_EQ(devices(), (std::vector<int>{4, 2, 3})) << "no node was left";
}

TEST_F(UseNodesTest, SomeAreKeptAndTheRestGoes) {
  constexpr int kMany = 200;
  for (int i = 0; i < kMany; ++i) insert(i);
  std::set<const StreamUse*> before;
  for (const StreamUse& use : uses_) before.insert(&use);
  while (!uses_.empty()) nodes_.take(uses_, uses_.before_begin());
  StreamUses kept;  // in which what the host hands out again is not seen
  for (int i = 0; i < kMany; ++i) kept.push_front({});
  for (int i = 0; i < 64; ++i) insert(i);
  for (const StreamUse& use : uses_) EXPECT_TRUE(before.contains(&use));
  EXPECT_EQ(std::distance(uses_.begin(), uses_.end()), 64);
  EXPECT_EQ(uses_.front().device, 63);
}

}  // namespace
}  // namespace cistern
