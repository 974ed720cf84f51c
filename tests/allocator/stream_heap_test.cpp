// How blocks of a segment are cut and grown together: against what a walk finds.
#include "allocator/stream_heap.h"

#include "allocator/block_arena.h"
#include "allocator/block_cuts.h"
#include "allocator/growing_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/allocator/mapped_pages.h"
#include "tests/allocator/roomy_stream_heap.h"
#include "tests/property.h"

namespace cistern {
namespace {

[[maybe_unused]] const bool stream_heap_configured = configure_properties("StreamHeapProperties", 5000, 400);
constexpr std::size_t kSegment = 64 * 512;

struct SegmentOfBlocks {
  SegmentOfBlocks() {
    arena.reserve(200);
    segment.address = 1 << 21;
    segment.bytes = kSegment;
    segment.owner = &heap;
    segment.pool = &heap.of(PoolKind::small);
    Block* block = arena.take_block();
    block->address = segment.address;
    block->bytes = segment.bytes;
    block->segment = &segment;
    segment.first = segment.last = block;
    heap.of(PoolKind::small).insert(block);
  }
  // Inactive splits, as PyTorch counts them, and that blocks tile the segment and are coalesced.
  [[nodiscard]] InactiveSplitChange walk() const {
    InactiveSplitChange found;
    std::uint64_t address = segment.address;
    std::size_t free_blocks = 0;
    const Block* previous = nullptr;
    for (const Block* block = segment.first; block != nullptr; block = block->next) {
      EXPECT_EQ(block->address, address);
      EXPECT_EQ(block->previous, previous);
      address += block->bytes;
      const bool is_free = block->state == BlockState::inactive;
      EXPECT_FALSE(is_free && previous != nullptr && previous->state == BlockState::inactive) << "not coalesced";
      free_blocks += is_free ? 1 : 0;
      previous = block;
      if (!is_free) continue;
      EXPECT_TRUE(heap.of(PoolKind::small).contains(block));
      if (!block->is_split()) continue;
      ++found.count;
      found.bytes += static_cast<std::int64_t>(block->bytes);
    }
    EXPECT_EQ(segment.last, previous);
    EXPECT_EQ(address, segment.address + segment.bytes);
    EXPECT_EQ(heap.of(PoolKind::small).size(), free_blocks);
    heap.of(PoolKind::small).check();
    return found;
  }

  BlockArena arena;
  testing::RoomyStreamHeap heap;
  Segment segment;
};

RC_GTEST_PROP(StreamHeapProperties, ChangesAreThoseThatAWalkFinds, ()) {
  SegmentOfBlocks world;
  BlockSpares& spares = world.arena.spares();
  std::vector<Block*> live;
  InactiveSplitChange splits;
  const auto steps = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 1000));
  for (const std::size_t step : steps) {
    InactiveSplitChange change;
    Block* const free = world.heap.of(PoolKind::small).best_fit((step % 16 + 1) * 512);
    if (step % 3 != 0 && free != nullptr) {
      const std::size_t bytes = step % 5 == 0 ? free->bytes : (step % 16 + 1) * 512;
      change = change_by_taking(*free, bytes);
      Block* block = take_front(free, bytes, world.heap.of(PoolKind::small), spares);
      block->state = BlockState::active_allocated;
      live.push_back(block);
    } else if (!live.empty()) {
      const auto place = live.begin() + static_cast<std::ptrdiff_t>(step % live.size());
      const FreeNeighbours neighbours(**place);
      change = change_by_freeing(**place, neighbours);
      static_cast<void>(put_free(*place, neighbours, world.heap.of(PoolKind::small), spares));
      live.erase(place);
    }
    splits.count += change.count;
    splits.bytes += change.bytes;
    const InactiveSplitChange walked = world.walk();
    RC_ASSERT(walked.count == splits.count);
    RC_ASSERT(walked.bytes == splits.bytes);
  }
}

// Of a device's streams most ask for little, and there may be a thousand.
TEST(StreamHeap, TouchesOfItsRoomOnlyWhatItUses) {
  GrowingTable<StreamRoom> room(1);
  const auto pages = [&] { return testing_host::resident_pages(room.data(), sizeof(StreamRoom)); };
  StreamHeap heap(room[0]);
  BlockPool& pool = heap.of(PoolKind::small);
  BlockArena arena;
  arena.reserve(2);
  std::size_t seen = 0;
  const auto insert = [&](std::uint64_t address, std::size_t bytes) {
    Block* const block = arena.take_block();
    block->address = address;
    block->bytes = bytes;
    pool.insert(block);
    EXPECT_EQ(pool.best_fit(bytes), block);
    pool.for_each([&](const Block*) { ++seen; });
  };
  insert(1 << 21, 512);
  EXPECT_EQ(pages(), 0U) << "the block that came last is in no tree";
  insert(1 << 20, 1 << 20);
  EXPECT_EQ(pages(), 1U) << "of the pool's trees";
  EXPECT_EQ(seen, 3U);
}

}  // namespace
}  // namespace cistern
