#pragma once

// Retired: what the heap has let go, and what may run a user's code or a driver call when it ends: so it ends
// after the heap's lock was given up. Putting it here takes no host memory, which may be why it goes.
// Complexity: O(1) to put something here. Not thread-safe: the heap's lock is held.

#include "allocator/block.h"
#include "allocator/use_nodes.h"

#include <array>
#include <cstddef>
#include <forward_list>
#include <iterator>
#include <memory>
#include <utility>

namespace cistern {

struct Retired {
  using Owners = std::forward_list<std::shared_ptr<void>>;

  [[nodiscard]] bool empty() const noexcept { return first_count == 0 && uses.empty() && owners.empty(); }
  // Takes the use behind `before` out of `from`; what ends with it comes here, its node to `nodes`, if it can.
  void take(StreamUses& from, StreamUses::iterator before, UseNodes& nodes) noexcept {
    StreamUse& use = *std::next(before);
    if (use.owner != nullptr) {
      if (first_count == first.size()) {
        uses.splice_after(uses.before_begin(), from, before);
        return;
      }
      first[first_count++] = std::move(use.owner);
    }
    nodes.take(from, before);
  }

  // The first owners of streams, which leave their nodes behind; the rest come with theirs.
  std::array<std::shared_ptr<void>, 2> first;
  std::size_t first_count = 0;
  StreamUses uses;
  Owners owners;  // of private pools
};

}  // namespace cistern
