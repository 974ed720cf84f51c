#pragma once

// Which blocks a subcommand is asked for: options, and what they mean for one snapshot.

#include <cistern/snapshot.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/block_records.h"

namespace cistern {

// What is not given matches every block.
struct BlockFilter {
  std::optional<std::uint64_t> device;
  std::optional<std::int64_t> stream;
  std::optional<std::pair<std::int64_t, std::int64_t>> pool_id;
  std::optional<std::string> tag;    // empty: blocks without one
  std::optional<std::string> stack;  // a part of a frame as frame_text() has it; empty: blocks without a stack
  std::optional<std::uint64_t> least_size;
  std::optional<std::uint64_t> most_size;
  std::optional<std::size_t> state;         // a BlockState
  std::optional<std::size_t> segment_kind;  // 0: small, 1: large, 2: expandable

  // Declare the options; the filter must outlive the parsing. Those of whose block it is:
  void add_owner_options(CLI::App& app);
  // and those of the block itself.
  void add_block_options(CLI::App& app);
  // Throws InvalidArgument for a device that the snapshot has nothing of, or a tag that it does not name: there would
  // be no blocks, as where all is well.
  void require_known(const Snapshot& snapshot, std::string_view command) const;
};

// A filter for the blocks of one snapshot, which both must outlive it. Looks at each stack once.
// Not thread-safe.
class BlockMatcher {
 public:
  BlockMatcher(const BlockFilter& filter, const Snapshot& snapshot) : filter_(filter), snapshot_(snapshot) {}
  [[nodiscard]] bool matches(const BlockRecord& block);

 private:
  [[nodiscard]] bool matches_tag(TagIndex tag) const;
  [[nodiscard]] bool matches_stack(StackIndex stack);

  enum class Known : std::uint8_t { not_yet, no, yes };
  const BlockFilter& filter_;
  const Snapshot& snapshot_;
  std::vector<Known> stacks_;
};

// Every block that the filter matches.
[[nodiscard]] std::vector<BlockRecord> matching_blocks(const Snapshot& snapshot, const BlockFilter& filter);

}  // namespace cistern
