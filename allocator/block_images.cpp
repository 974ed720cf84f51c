#include "allocator/block_images.h"

#include <algorithm>
#include <functional>

namespace cistern {
namespace {

// In a snapshot's table of all names, which begins with number 1.
TagIndex index_of(TagId tag) { return tag == kUntagged ? kNoTag : TagIndex{tag} - 1; }

}  // namespace

BlockInfo describe(const BlockImage& block) {
  return {block.address,
          static_cast<std::int64_t>(block.bytes),
          static_cast<std::int64_t>(block.requested),
          block.state,
          static_cast<StackIndex>(block.stack) - 1,
          block.state == BlockState::inactive ? kNoTag : index_of(block.tag)};
}

BlockImages::Size BlockImages::size_for(const BlockArena& arena) noexcept {
  if (arena.places() / kCopiesAStep > arena.blocks()) return {arena.blocks(), 0};
  return {arena.places(), arena.block_chunks()};
}

void BlockImages::reserve(const Size& size) {
  images_.resize(size.images);
  chunks_.resize(size.chunks);
}

bool BlockImages::has_room_for(const Size& size) const noexcept {
  return images_.size() >= size.images && chunks_.size() >= size.chunks;
}

void BlockImages::copy(const BlockArena& arena, std::span<const Block* const> first) noexcept {
  const Size size = size_for(arena);
  is_in_order_ = size.chunks == 0;
  BlockImage* image = images_.data();
  if (is_in_order_) {
    for (const Block* block : first)
      for (; block != nullptr; block = block->next) *image++ = image_of(*block);
    return;
  }
  chunks_.resize(size.chunks);
  Chunk* chunk = chunks_.data();
  arena.for_each_chunk([&](std::span<const Block> blocks) {
    *chunk++ = {blocks.data(), static_cast<std::size_t>(image - images_.data())};
    for (const Block& block : blocks) *image++ = image_of(block);
  });
}

void BlockImages::sort_chunks() {
  std::sort(chunks_.begin(), chunks_.end(),
            [](const Chunk& a, const Chunk& b) { return std::less<>()(a.begin, b.begin); });
}

std::size_t BlockImages::place_of(const Block* block) const noexcept {
  const auto after = std::upper_bound(chunks_.begin(), chunks_.end(), block, [](const Block* of, const Chunk& chunk) {
    return std::less<>()(of, chunk.begin);
  });
  const Chunk& chunk = *std::prev(after);
  return chunk.first_image + static_cast<std::size_t>(block - chunk.begin);
}

}  // namespace cistern
