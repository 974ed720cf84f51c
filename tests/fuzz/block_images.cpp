// Blocks of an arena in the order of their segments, beside lists of what each shows: they come, go and change, and
// what a copy of before shows stays as it was. And the uses of one, whose nodes are used again.

#include "allocator/block_images.h"

#include "allocator/block_arena.h"
#include "allocator/use_nodes.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <array>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kSegments = 5;
constexpr std::size_t kMostBlocks = 3000;

class ImagesProgram {
 public:
  ~ImagesProgram() {
    while (spares_.size() != 0) arena_.give_back(spares_.take());
  }
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    switch (kind % 8) {
      case 0:
        grow(1 + kind / 8, kind);
        break;
      case 1:
        if (kind >= 128) grow(steps.word() % 700, kind);
        break;
      case 2:
        shrink(steps.byte(), kind / 8);
        break;
      case 3:
        change(kind / 8);
        break;
      case 4:
        move_spares(kind / 8);
        break;
      case 5:
      case 6:
        copy();
        break;
      default:
        compare_copy();
    }
    require(arena_.blocks() == blocks_.size() + spares_.size(), "how many blocks are taken");
  }
  void finish() { compare_copy(); }

 private:
  using Shown =
      std::tuple<std::size_t, std::uint64_t, std::size_t, std::size_t, const Block*, StackId, TagId, BlockState>;
  static Shown shown(std::size_t segment, const Block& block) {
    return {segment, block.address, block.bytes, block.requested, block.next, block.stack, block.tag, block.state};
  }

  void fill(Block& block) {
    ++last_;
    block.address = last_ * 512;
    block.bytes = last_ * 7;
    block.requested = last_ * 5;
    block.stack = static_cast<StackId>(last_);
    block.tag = static_cast<TagId>(last_ % 100);
    block.state = static_cast<BlockState>(last_ % 3);
  }
  void grow(std::uint64_t count, std::uint64_t kind) {
    for (; count != 0 && blocks_.size() < kMostBlocks; --count) {
      const bool from_spares = kind >= 192 && spares_.size() != 0;
      if (!from_spares) arena_.reserve(1, 0);
      require(from_spares || arena_.has(1, 0), "what was reserved is there");
      Block* const block = from_spares ? spares_.take() : arena_.take_block();
      require(blocks_.insert(block).second, "a block is taken by one");
      require(block->address == 0 && block->bytes == 0 && block->requested == 0 && block->next == nullptr &&
                  block->segment == nullptr && block->state == BlockState::inactive && block->tag == kUntagged &&
                  !block->has_uses && block->uses.empty(),
              "a block that is taken is as a new one");
      fill(*block);
      if (last_ % 3 == 0) {
        block->has_uses = true;
        block->uses.push_front({});
      }
      std::vector<Block*>& segment = segments_[last_ * 7 % kSegments];
      if (!segment.empty()) segment.back()->next = block;
      segment.push_back(block);
    }
  }
  // All but some of each.
  void shrink(std::uint64_t which, std::uint64_t kept) {
    std::vector<Block*>& segment = segments_[which % kSegments];
    std::vector<Block*> left;
    for (std::size_t i = 0; i < segment.size(); ++i) {
      if (i % (kept + 1) == which % (kept + 1)) {
        left.push_back(segment[i]);
        continue;
      }
      blocks_.erase(segment[i]);
      if (which % 2 == 0)
        arena_.give_back(segment[i]);
      else
        spares_.give(segment[i]);
    }
    for (std::size_t i = 0; i < left.size(); ++i) left[i]->next = i + 1 < left.size() ? left[i + 1] : nullptr;
    segment = std::move(left);
  }
  void change(std::uint64_t which) {
    for (Block* block : segments_[which % kSegments]) fill(*block);
  }
  void move_spares(std::uint64_t count) {
    if (count % 2 == 0)
      arena_.spares().move_to(spares_, std::min<std::size_t>(count, arena_.spares().size()));
    else
      spares_.move_to(arena_.spares(), std::min<std::size_t>(count, spares_.size()));
  }
  void copy() {
    first_.clear();
    copied_.clear();
    for (std::size_t segment = 0; segment < kSegments; ++segment) {
      first_.push_back(segments_[segment].empty() ? nullptr : segments_[segment].front());
      for (const Block* block : segments_[segment]) copied_.push_back(shown(segment, *block));
    }
    const BlockImages::Size size = BlockImages::size_for(arena_);
    if (!images_.has_room_for(size)) images_.reserve(size);
    require(images_.has_room_for(size), "there is room for what was reserved");
    images_.copy(arena_, first_);
  }
  void compare_copy() {
    std::vector<Shown> found;
    images_.for_each(first_, [&](std::size_t segment, const BlockImage& image) {
      require(found.size() < copied_.size(), "a copy has no more blocks");
      found.emplace_back(segment, image.address, image.bytes, image.requested, image.next, image.stack, image.tag,
                         image.state);
    });
    require(found == copied_, "a copy is what was there, in order");
  }

  BlockArena arena_;
  BlockSpares spares_;  // taken from the arena for nothing
  std::array<std::vector<Block*>, kSegments> segments_;
  std::set<Block*> blocks_;
  BlockImages images_;
  std::vector<const Block*> first_;
  std::vector<Shown> copied_;
  std::uint64_t last_ = 0;
};

class UsesProgram {
 public:
  void step(Steps& steps) {
    const std::uint64_t kind = steps.byte();
    for (std::uint64_t i = 0; i <= kind / 16; ++i) {
      if (kind % 4 < 2) {
        insert(steps.byte());
      } else if (!expected_.empty()) {
        const std::size_t which = kind % expected_.size();
        nodes_.take(uses_, before(which));
        expected_.erase(expected_.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
    std::vector<std::pair<int, bool>> found;
    for (const StreamUse& use : uses_) found.emplace_back(use.device, use.in_capture);
    require(found == expected_, "which uses there are, in order");
  }

 private:
  StreamUses::iterator before(std::size_t which) {
    return std::next(uses_.before_begin(), static_cast<std::ptrdiff_t>(which));
  }
  void insert(std::uint64_t text) {
    if (expected_.size() >= 100) return;
    StreamUse use;
    use.device = static_cast<int>(text);
    use.in_capture = text % 3 == 0;
    const std::size_t which = text % (expected_.size() + 1);
    expected_.emplace(expected_.begin() + static_cast<std::ptrdiff_t>(which), use.device, use.in_capture);
    const auto place = nodes_.insert(uses_, before(which), std::move(use));
    require(place == before(which + 1), "where a use is");
  }

  UseNodes nodes_;
  StreamUses uses_;
  std::vector<std::pair<int, bool>> expected_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  ImagesProgram images;
  UsesProgram uses;
  Steps steps(data, size);
  while (steps.more()) {
    if (steps.byte() % 4 != 0)
      images.step(steps);
    else
      uses.step(steps);
  }
  images.finish();
  return 0;
}
