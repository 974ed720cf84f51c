#pragma once

// Who holds memory: a stack and a tag, by what they say, so that those of several snapshots can be
// compared although each numbers them its own way.
//
// Not thread-safe.

#include <cistern/snapshot.h>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/block_records.h"
#include "tools/seeded_hash.h"

namespace cistern {

// Numbers of an OwnerTable; 0 is none.
struct Owner {
  std::uint32_t stack = 0;
  std::uint32_t tag = 0;
  friend auto operator<=>(const Owner&, const Owner&) = default;
};

// Stacks and tags, each once, however many snapshots have them; frames of several stacks are kept once too.
class OwnerTable {
 public:
  // The number of an equal stack or tag, which is kept if it is new. An empty one is none.
  [[nodiscard]] std::uint32_t number_of(const StackInfo& stack);
  [[nodiscard]] std::uint32_t number_of(std::string_view tag);

  // Requires: a number that this table gave.
  [[nodiscard]] StackInfo stack(std::uint32_t number) const;
  [[nodiscard]] std::string_view tag(std::uint32_t number) const;

 private:
  using FrameNumbers = std::vector<std::uint32_t>;
  [[nodiscard]] std::uint32_t frame_number(const SharedFrame& frame);

  std::unordered_map<std::string, std::uint32_t, SeededHash> frame_numbers_;  // by all that a frame says
  std::vector<SharedFrame> frames_;
  std::map<FrameNumbers, std::uint32_t> stack_numbers_;
  std::vector<const FrameNumbers*> stacks_;
  std::unordered_map<std::string, std::uint32_t, SeededHash> tag_numbers_;
  std::vector<const std::string*> tags_;
};

// The owners of one snapshot's blocks; looks at each stack and tag once.
class SnapshotOwners {
 public:
  // Both must outlive it.
  SnapshotOwners(OwnerTable& table, const Snapshot& snapshot)
      : table_(table), snapshot_(snapshot), stacks_(snapshot.stacks.size()), tags_(snapshot.tags.size()) {}

  [[nodiscard]] Owner of(StackIndex stack, TagIndex tag) { return {stack_number(stack), tag_number(tag)}; }
  [[nodiscard]] std::uint32_t stack_number(StackIndex stack);
  [[nodiscard]] std::uint32_t tag_number(TagIndex tag);

 private:
  struct Known {
    bool known = false;
    std::uint32_t number = 0;
  };
  OwnerTable& table_;
  const Snapshot& snapshot_;
  std::vector<Known> stacks_;
  std::vector<Known> tags_;
};

using OwnerFigures = std::map<Owner, BlockFigures>;

}  // namespace cistern
