#pragma once

// LazyFree: the last allocation of a stream, while nothing else has happened there.
//
// Programs free what they allocated last and ask for the same size again. As long as nothing
// else happened, that free and the next request would merge the same block into the same free block and cut
// it out again, and no figure would come to where it had not been: the block is left as it is, and how often
// it went and came is counted. So it is where another stream used the block: its free is then awaited first
// (AwaitedFrees). Whatever else happens on the stream, and whoever takes the heap's lock, finds all of
// it carried out (stream_hits.cpp, HeapMutex).
// Not thread-safe: guarded by the stream's lock.

#include "allocator/block.h"
#include "stats/block_ledger.h"

#include <cstddef>
#include <cstdint>

namespace cistern {

struct LazyFree {
  enum class State : std::uint8_t {
    in_use,   // handed out
    shared,   // and another stream uses it
    free,     // freed since; in no pool yet, and in the block map still
    awaited,  // freed since, behind an event; in the block map still
  };

  // The block was handed out. Member by member: copied as a whole, it is read back before it is written.
  void begin(Block* allocated, const InactiveSplitChange& brought) {
    block = allocated;
    change.count = brought.count;
    change.bytes = brought.bytes;
    turns = 0;
    state = State::in_use;
    is_told = true;
  }
  [[nodiscard]] InactiveSplitChange change_by_freeing() const noexcept { return {-change.count, -change.bytes}; }
  [[nodiscard]] bool is_freed() const noexcept { return state >= State::free; }

  Block* block = nullptr;      // null: something else happened; then it is not freed, and no turns are counted
  InactiveSplitChange change;  // that it brought; a free takes it back
  std::int64_t turns = 0;      // times that it was freed and handed out again since
  State state = State::in_use;
  // What of it a recurrence that does not learn is not told one by one: a free and the request that follows cancel
  // each other. A free that was not told, and stands, is told when it is carried out.
  bool is_told = true;
};

}  // namespace cistern
