#pragma once

// UseNodes: list nodes of uses that are over, for uses to come: a block that another stream uses again and
// again asks for no host memory.
//
// Not thread-safe: guarded by the lock of what it is part of. O(1).

#include "allocator/block.h"

#include <cstddef>
#include <iterator>
#include <utility>

namespace cistern {

class UseNodes {
 public:
  // Puts a use behind `before`. Returns where it is. Throws std::bad_alloc, unchanged.
  StreamUses::iterator insert(StreamUses& uses, StreamUses::iterator before, StreamUse&& use) {
    if (nodes_.empty()) return uses.insert_after(before, std::move(use));
    uses.splice_after(before, nodes_, nodes_.before_begin());
    --size_;
    const auto place = std::next(before);
    *place = std::move(use);
    return place;
  }
  // Ends the use behind `before`. Requires: it has no owner.
  void take(StreamUses& from, StreamUses::iterator before) noexcept {
    if (size_ == kMost) {
      from.erase_after(before);
      return;
    }
    nodes_.splice_after(nodes_.before_begin(), from, before);
    ++size_;
  }

 private:
  // More at once are the exception: 4 KiB.
  static constexpr std::size_t kMost = 64;

  StreamUses nodes_;  // without owners
  std::size_t size_ = 0;
};

}  // namespace cistern
