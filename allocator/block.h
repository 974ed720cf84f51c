#pragma once

// Segment and Block: what the heap knows of its memory, as plain data.
//
// A segment is one piece of address space from a segment source; its blocks tile it, by
// address, without gaps. Metadata lives apart from the memory it describes.
// Not thread-safe: guarded by the owning heap's lock, and the blocks of a stream that is awake by that stream's.

#include <cistern/snapshot.h>

#include "runtime/stream_access.h"
#include "stats/history.h"
#include "stats/recorder.h"
#include "stats/tags.h"

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>

namespace cistern {

// The legacy default stream is 0, whichever of its two handles was used.
[[nodiscard]] inline std::int64_t stream_number(const StreamIdentity& stream) noexcept {
  return stream.id == kLegacyStreamId ? 0 : static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream.handle));
}

class BlockPool;
struct AddressRange;
struct StreamHeap;
struct Block;

// A stream as an owner or user of memory. `owner` keeps it alive where somebody owns it.
struct StreamUse {
  StreamIdentity stream;
  int device = 0;
  std::shared_ptr<void> owner;
  // Recorded while the stream was captured, and not since: a capture queues no work.
  bool in_capture = false;
};

// Linked, so that what must end without the heap's lock is put off without host memory.
using StreamUses = std::forward_list<StreamUse>;

// One default stream a device has the same id: only both together tell streams apart.
[[nodiscard]] inline bool same_stream(const StreamUse& a, const StreamUse& b) {
  return a.stream.id == b.stream.id && a.device == b.device;
}

struct Segment {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  StreamIdentity stream;
  PoolKind kind = PoolKind::small;
  // Counted as oversize when it came: options may have changed since.
  bool oversize = false;
  // On its way to the driver or to another stream: its one block is free, but in no pool. In an
  // address range also pages that are being mapped, which have no block yet.
  bool releasing = false;
  // Of those, a driver's allocation on its way back: told of as released already.
  bool going_back = false;
  // In an address range: mapped by a map that failed and could not be rolled back, and nobody is at it.
  bool is_stray = false;
  // Of the driver's own making, in the default pool of a policy that caches: nothing but the
  // heap's own figures follow it.
  bool is_plain = false;
  // Its live blocks are found in its owner's map, by page; else in the heap's.
  bool is_found_by_page = false;
  BlockPool* pool = nullptr;    // of its stream and kind: where its free blocks are
  StreamHeap* owner = nullptr;  // whose it is; `pool` is part of it
  Block* first = nullptr;       // lowest address
  Block* last = nullptr;        // highest
  StackId stack = kNoStackId;   // of the request that brought it; counted by the history's stack table
  // What it is a mapped part of: an expandable segment, which joins and parts with its neighbours
  // there. Null: the driver's own allocation.
  AddressRange* range = nullptr;
  // Whose blocks in paged memory it stands for: the stream's number there; -1: none. See paged_memory.h.
  std::int32_t paged_stream = -1;
  Segment* previous = nullptr;
  Segment* next = nullptr;
  Segment* next_chosen = nullptr;  // see SegmentList
  // The pool's search count when all of it became free: for garbage collection by age.
  std::uint64_t free_since = 0;
  // Of pages on their way to the driver: the size of the block that they were cut from, and how far
  // their unmap came.
  std::size_t cut_from_bytes = 0;
  std::size_t unmapped_bytes = 0;

  [[nodiscard]] std::uint64_t end() const { return address + bytes; }
  [[nodiscard]] bool is_paged() const { return paged_stream >= 0; }
};

// Its first cache line is what a hit and a free look at, of the block itself and of its neighbours; the second is for
// blocks that are in a tree of free ones, whose free somebody waits for, or that are held.
struct alignas(64) Block {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  // Neighbours in the segment.
  Block* previous = nullptr;
  Block* next = nullptr;
  Segment* segment = nullptr;
  std::size_t requested = 0;
  BlockState state = BlockState::inactive;
  PoolKind kind = PoolKind::small;  // its segment's, of a live block
  bool oversize = false;            // counted as oversize when it was handed out
  bool has_uses = false;            // `uses` may have some; since it was handed out, it has
  // Whose it was when it was handed out: a number of the tag registry. Says nothing of a free block.
  TagId tag = kUntagged;
  bool is_held = false;  // it stays allocated although it is freed: see DeviceAllocator::hold
  bool freed_while_held = false;
  StackId stack = kNoStackId;  // of the allocation; counted by the history's stack table
  // Of a block in paged memory, the number of its place there: see KnownPlaces.
  std::uint32_t paged_place = 0;

  // The index of free blocks: a treap, see block_pool.h.
  Block* left = nullptr;
  Block* right = nullptr;
  Block** place = nullptr;     // what points to it there
  std::uint32_t priority = 0;  // fixed when the object is made
  // Events that a freed block still waits for.
  std::uint32_t pending_events = 0;
  std::uint32_t holds = 0;           // how many hold it
  std::uint64_t freed_in_grant = 0;  // see Recorder::grants
  // When the free was requested that other streams keep waiting, in ticks of the history's clock.
  std::uint64_t freed_at = 0;
  // Other streams that used the block since it was handed out.
  StreamUses uses;

  [[nodiscard]] bool is_split() const { return previous != nullptr || next != nullptr; }
};
static_assert(sizeof(Block) == 128 && offsetof(Block, left) == 64);

}  // namespace cistern
