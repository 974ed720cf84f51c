// The blocks of a heap as they were at one moment, from an arena in which they lie anywhere.

#include "allocator/block_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace cistern {
namespace {

// Chains of blocks in an arena, as segments have them.
class Chains {
 public:
  explicit Chains(std::size_t chains) : first_(chains), last_(chains) {}

  // Chunks come from addresses that fall and rise: the holes that freed memory leaves.
  void grow(std::size_t blocks) {
    std::vector<std::unique_ptr<std::byte[]>> holes;
    for (int i = 0; i < 4; ++i) holes.push_back(std::make_unique<std::byte[]>(256 * sizeof(Block)));
    for (std::size_t i = 0; i < blocks; ++i) {
      if (i % 300 == 0 && !holes.empty()) holes.pop_back();
      arena_.reserve(1);
      add(arena_.take_block());
    }
  }
  // All but every `kept`th go back to the arena.
  void thin_out(std::size_t kept) {
    std::vector<Block*> taken;
    for (Block*& block : first_)
      for (; block != nullptr; block = block->next) taken.push_back(block);
    std::fill(last_.begin(), last_.end(), nullptr);
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (i % kept == 0)
        add(taken[i]);
      else
        arena_.give_back(taken[i]);
    }
  }
  void change_everything() {
    for (Block* block : first_)
      while (block != nullptr) {
        Block* const next = block->next;
        *block = Block{};
        block = next;
      }
  }

  struct Shown {
    std::uint64_t address;
    std::size_t bytes;
    std::size_t requested;
    StackId stack;
    TagId tag;
    BlockState state;
    bool operator==(const Shown&) const = default;
  };
  [[nodiscard]] std::vector<std::vector<Shown>> shown() const {
    std::vector<std::vector<Shown>> all(first_.size());
    for (std::size_t i = 0; i < first_.size(); ++i)
      for (const Block* block = first_[i]; block != nullptr; block = block->next)
        all[i].push_back({block->address, block->bytes, block->requested, block->stack, block->tag, block->state});
    return all;
  }
  [[nodiscard]] std::vector<const Block*> first() const { return {first_.begin(), first_.end()}; }
  [[nodiscard]] const BlockArena& arena() const { return arena_; }

 private:
  void add(Block* block) {
    const std::size_t chain = random_() % first_.size();
    block->next = nullptr;
    block->address = random_();
    block->bytes = random_();
    block->requested = random_();
    block->stack = static_cast<StackId>(random_());
    block->tag = static_cast<TagId>(random_());
    block->state = static_cast<BlockState>(random_() % 3);
    (last_[chain] == nullptr ? first_[chain] : last_[chain]->next) = block;
    last_[chain] = block;
  }

  BlockArena arena_;
  std::vector<Block*> first_;
  std::vector<Block*> last_;
  std::mt19937_64 random_{20261122};
};

std::vector<std::vector<Chains::Shown>> shown(BlockImages& images, const std::vector<const Block*>& first) {
  std::vector<std::vector<Chains::Shown>> all(first.size());
  images.for_each(first, [&all](std::size_t segment, const BlockImage& image) {
    if (all[segment].size() > 100000) throw std::logic_error("the blocks of a segment go in a circle");
    all[segment].push_back({image.address, image.bytes, image.requested, image.stack, image.tag, image.state});
  });
  return all;
}

TEST(BlockImages, AreTheSegmentsBlocksInOrderAsTheyWere) {
  for (const std::size_t blocks : {0U, 1U, 256U, 257U, 5000U})
    for (const std::size_t kept : {1U, 2U, 7U, 9U, 100U}) {
      Chains chains(13);
      chains.grow(blocks);
      if (kept != 1) chains.thin_out(kept);
      const std::vector<const Block*> first = chains.first();
      const std::vector<std::vector<Chains::Shown>> expected = chains.shown();
      BlockImages images;
      images.reserve(BlockImages::size_for(chains.arena()));
      images.copy(chains.arena(), first);
      chains.change_everything();
      EXPECT_EQ(shown(images, first), expected) << blocks << " blocks, of which one in " << kept << " is kept";
    }
}

// An arena that was full once does not make every snapshot as long.
TEST(BlockImages, AnArenaThatIsMostlyFreeIsNotCopiedWhole) {
  Chains chains(3);
  chains.grow(4096);
  BlockImages::Size size = BlockImages::size_for(chains.arena());
  EXPECT_EQ(size.images, 4096U);
  EXPECT_EQ(size.chunks, 16U);
  chains.thin_out(64);
  size = BlockImages::size_for(chains.arena());
  EXPECT_EQ(size.images, 64U);
  EXPECT_EQ(size.chunks, 0U);
}

TEST(BlockImages, MoreRoomThanIsNeededServesAsWell) {
  Chains chains(2);
  chains.grow(700);
  const std::vector<const Block*> first = chains.first();
  const std::vector<std::vector<Chains::Shown>> expected = chains.shown();
  BlockImages images;
  EXPECT_FALSE(images.has_room_for(BlockImages::size_for(chains.arena())));
  images.reserve({5000, 100});
  EXPECT_TRUE(images.has_room_for({5000, 100}));
  EXPECT_FALSE(images.has_room_for({5001, 100}));
  EXPECT_FALSE(images.has_room_for({5000, 101}));
  images.copy(chains.arena(), first);
  EXPECT_EQ(shown(images, first), expected);
}

}  // namespace
}  // namespace cistern
