#pragma once

// RunNodes: what is known of each free run, in one cache line, with its links in the two indexes (RunTree) and to its
// neighbours.
//
// Runs are known by numbers. There are addresses for so many before they are needed, and pages as far as runs came, for
// most room is never used: who keeps some for each change that may come asks for many times what comes.
// Complexity: O(1); `provide`, and to take a run that is new, O(pages) every now and then. Not thread-safe.

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "allocator/free_run.h"
#include "allocator/growing_table.h"
#include "allocator/handle_counts.h"
#include "allocator/indexed_run.h"
#include "allocator/page_size.h"

namespace cistern {

using RunNumber = std::uint32_t;
inline constexpr RunNumber kNoRun = ~RunNumber{0};

// In a tree. No parent: it is the root.
struct RunLinks {
  RunNumber parent = kNoRun;
  RunNumber lower = kNoRun;
  RunNumber upper = kNoRun;
};

struct alignas(64) RunNode {
  Sectors address = 0;
  Sectors sectors = 0;
  // As IndexedRun has them.
  StreamNumber stream = 0;
  std::uint32_t found : 3 = IndexedRun::kAll;
  std::uint32_t priority : 29 = 0;  // in the trees
  HandleCounts::Classes classes = 0;
  RunLinks by_size;
  RunLinks by_address;
  // The runs beside it by address.
  RunNumber before = kNoRun;
  RunNumber behind = kNoRun;

  [[nodiscard]] Sectors end() const noexcept { return address + sectors; }
  [[nodiscard]] FreeRun run() const noexcept { return {address, sectors, stream}; }
  [[nodiscard]] IndexedRun indexed() const noexcept { return {run(), found, classes}; }
  void be(const IndexedRun& indexed) noexcept {
    address = indexed.run.address;
    sectors = indexed.run.sectors;
    stream = indexed.run.stream;
    found = indexed.found & IndexedRun::kAll;
    classes = indexed.classes;
  }
};
static_assert(sizeof(RunNode) == 64);

class RunNodes {
 public:
  // Up to so many can be taken from here on. Throws std::bad_alloc, unchanged.
  void provide(std::size_t runs) {
    // By half at least, so that it is seldom.
    if (!has_room_for(runs)) nodes_.expect(std::max({runs, nodes_.size() + nodes_.size() / 2, kFewest}));
  }
  [[nodiscard]] bool has_room_for(std::size_t runs) const noexcept { return runs <= nodes_.size(); }

  // Requires: there is room.
  [[nodiscard]] RunNumber take() noexcept {
    if (spare_ == kNoRun) return take_new();
    const RunNumber number = spare_;
    spare_ = nodes_[number].behind;
    return number;
  }
  // It is nobody's, and looks as if all of it was found.
  void give(RunNumber number) noexcept {
    nodes_[number].found = IndexedRun::kAll;
    nodes_[number].behind = spare_;
    spare_ = number;
  }

  [[nodiscard]] RunNode& operator[](RunNumber number) noexcept { return nodes_[number]; }
  [[nodiscard]] const RunNode& operator[](RunNumber number) const noexcept { return nodes_[number]; }

 private:
  static constexpr std::size_t kFewest = 256;
  static constexpr std::uint32_t kPriorities = (std::uint32_t{1} << 29) - 1;

  // As good as random, and the same each time.
  [[nodiscard]] static std::uint32_t priority_of(std::size_t number) noexcept {
    std::uint64_t bits = (number + 1) * 0x9E3779B97F4A7C15ULL;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ULL;
    return static_cast<std::uint32_t>(bits >> 32);
  }

  [[gnu::noinline]] RunNumber take_new() noexcept {
    assert(has_room_for(used_ + 1));
    nodes_.provide(used_ + 1);  // their pages: there are addresses
    RunNode& node = nodes_[static_cast<RunNumber>(used_)];
    node = {};
    node.priority = priority_of(used_) & kPriorities;
    return static_cast<RunNumber>(used_++);
  }

  GrowingTable<RunNode> nodes_;
  std::size_t used_ = 0;      // of these, ever
  RunNumber spare_ = kNoRun;  // a list by `behind`
};

}  // namespace cistern
