#pragma once

// Retired: what the heap has let go, and what may run a user's code or a driver call when it ends: so it ends
// after the heap's lock was given up. Putting it here takes no host memory, which may be why it goes.
// Not thread-safe: the heap's lock is held.

#include "allocator/block.h"

#include <forward_list>
#include <iterator>
#include <memory>

namespace cistern {

struct Retired {
  using Owners = std::forward_list<std::shared_ptr<void>>;

  [[nodiscard]] bool empty() const noexcept { return uses.empty() && owners.empty(); }
  // Takes the use behind `before` out of `from`, to here if something ends with it.
  void take(StreamUses& from, StreamUses::iterator before) noexcept {
    if (std::next(before)->owner == nullptr)
      from.erase_after(before);
    else
      uses.splice_after(uses.before_begin(), from, before);
  }

  StreamUses uses;
  Owners owners;  // of private pools
};

}  // namespace cistern
