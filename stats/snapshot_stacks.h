#pragma once

// SnapshotStacks: the stacks of all devices in one table, each once, as a snapshot has them.

#include <cistern/snapshot.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace cistern {

class SnapshotStacks {
 public:
  // The index of a stack of return addresses, innermost first. Throws std::bad_alloc.
  [[nodiscard]] StackIndex index_of(std::span<const std::uintptr_t> frames);
  // Puts all of them, by index, into the snapshot, with what is known of their code. Frames of our own
  // that are behind the public functions are left out.
  void describe(Snapshot& snapshot) const;

 private:
  [[nodiscard]] std::span<const std::uintptr_t> stack(std::size_t index) const;

  std::vector<std::uintptr_t> frames_;
  std::vector<std::size_t> ends_;
  std::unordered_multimap<std::uint64_t, StackIndex> by_hash_;
};

}  // namespace cistern
