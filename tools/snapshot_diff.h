#pragma once

// What two snapshots' live blocks differ by, owner by owner.
//
// Thread safety: values, and functions of their arguments.

#include <cstdint>
#include <vector>

#include "tools/owners.h"

namespace cistern {

enum class Change : std::uint8_t { appeared, grown, shrunk, gone };
// "appeared", "grown", "shrunk", "gone".
[[nodiscard]] const char* to_string(Change change) noexcept;

struct OwnerChange {
  Owner owner;
  Change change = Change::grown;
  BlockFigures before;
  BlockFigures after;
  [[nodiscard]] std::int64_t bytes() const { return after.bytes - before.bytes; }
  [[nodiscard]] std::int64_t blocks() const { return after.blocks - before.blocks; }
};

struct OwnerChanges {
  std::vector<OwnerChange> changes;  // the largest change of bytes first, whatever its sign
  std::size_t unchanged = 0;         // owners
};

// An owner without blocks before has appeared, and without blocks after it is gone; between the two the bytes
// decide whether it has grown or shrunk, and the blocks where the bytes are the same.
[[nodiscard]] OwnerChanges compare_owners(const OwnerFigures& before, const OwnerFigures& after);

}  // namespace cistern
