#pragma once

// BlockImages: the blocks of one heap as they were at one moment: copied under its lock, put in order later.
//
// A copy goes through the arena from end to end, as fast as the memory allows; in the order of their segments
// blocks lie anywhere. Only where most of the arena is free are the segments followed instead.
// Complexity: a copy O(room in the arena), or O(blocks); to visit them O(chunks log chunks), and O(log chunks) a block.
// Not thread-safe: a snapshot's own. What is copied is guarded by the heap's lock.

#include "allocator/block.h"
#include "allocator/block_arena.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cistern {

// To follow a link takes as long as to copy so many objects that lie side by side.
inline constexpr std::size_t kCopiesAStep = 8;

// What a snapshot shows of a block.
struct BlockImage {
  std::uint64_t address;
  std::size_t bytes;
  std::size_t requested;
  const Block* next;  // where the neighbour was; for its place alone
  StackId stack;
  TagId tag;
  BlockState state;
};

[[nodiscard]] inline BlockImage image_of(const Block& block) noexcept {
  return {block.address, block.bytes, block.requested, block.next, block.stack, block.tag, block.state};
}
// Stack and tag by the heap's numbers - 1.
[[nodiscard]] BlockInfo describe(const BlockImage& block);

class BlockImages {
 public:
  // How many a copy of this arena has.
  struct Size {
    std::size_t images = 0;
    std::size_t chunks = 0;  // 0: the segments are followed
  };
  [[nodiscard]] static Size size_for(const BlockArena& arena) noexcept;
  // Memory for a copy of that size, so that nothing is asked for under the lock. Throws std::bad_alloc.
  void reserve(const Size& size);
  [[nodiscard]] bool has_room_for(const Size& size) const noexcept;

  // Under the lock: what is shown of every block of the segments that begin with `first`. Requires: room.
  void copy(const BlockArena& arena, std::span<const Block* const> first) noexcept;
  // Calls visit(index of the segment, image) for the blocks of each in turn, lowest address first. Requires: `first` is
  // what it was at the copy. The lock is not needed.
  template <class Visit>
  void for_each(std::span<const Block* const> first, Visit&& visit) {
    sort_chunks();
    std::size_t following = 0;
    for (std::size_t segment = 0; segment < first.size(); ++segment)
      for (const Block* block = first[segment]; block != nullptr;) {
        const BlockImage& image = images_[is_in_order_ ? following++ : place_of(block)];
        visit(segment, image);
        block = image.next;
      }
  }

 private:
  struct Chunk {
    const Block* begin;
    std::size_t first_image;
  };
  void sort_chunks();
  [[nodiscard]] std::size_t place_of(const Block* block) const noexcept;

  std::vector<BlockImage> images_;
  std::vector<Chunk> chunks_;
  bool is_in_order_ = false;  // of the segments, not of the arena
};

}  // namespace cistern
