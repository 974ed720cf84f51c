#pragma once

// Free runs by address.
//
// Addresses are parted into regions of 2 MiB. A bit a region tells in which runs begin, and there they are a tree,
// mostly of a few. Takes some 4 bytes of host memory for a region, up to half as many more, in arenas up to the highest
// address that was provided for. Complexity: O(log n) expected in the runs of a region to add one and to find one, and
// O(1) expected to remove one; O(arenas) to find one where none begins before it in its own. Not thread-safe.

#include <cstddef>
#include <vector>

#include "allocator/bit_tree.h"
#include "allocator/growing_table.h"
#include "allocator/page_size.h"
#include "allocator/prefetch.h"
#include "allocator/run_tree.h"

namespace cistern {

class RunsByAddress {
 public:
  explicit RunsByAddress(RunNodes& nodes) : nodes_(nodes) {}
  RunsByAddress(const RunsByAddress&) = delete;
  RunsByAddress& operator=(const RunsByAddress&) = delete;

  // Runs can begin there, and before it in its arena. Throws std::bad_alloc, unchanged.
  void provide(Sectors address) {
    if (!is_provided(address)) grow(address);
  }
  [[nodiscard]] bool is_provided(Sectors address) const noexcept {
    return arena_of(address) < arenas_.size() && region_of(address) < arenas_[arena_of(address)].roots.size();
  }
  // Requires of these: it is provided for.
  void add(RunNumber number) noexcept {
    const Sectors address = nodes_[number].address;
    Arena& arena = arenas_[arena_of(address)];
    RunNumber& root = arena.roots[region_of(address)];
    if (root == kNoRun) arena.has.set(region_of(address));
    Tree::insert(nodes_, root, number);
  }
  void remove(RunNumber number) noexcept {
    const Sectors address = nodes_[number].address;
    Arena& arena = arenas_[arena_of(address)];
    RunNumber& root = arena.roots[region_of(address)];
    Tree::erase(nodes_, root, number);
    if (root == kNoRun) arena.has.clear(region_of(address));
  }
  // Whether a run is where it would be if it began there, between the same others.
  [[nodiscard]] static bool stays(const RunNode& run, Sectors address) noexcept {
    return run.address >> kRegionBits == address >> kRegionBits;
  }
  // The run that begins last, at the address or before it; none: there is none.
  [[nodiscard]] RunNumber last_up_to(Sectors address) const noexcept {
    if (is_provided(address)) {
      const RunNumber found = Tree::last_before(nodes_, arenas_[arena_of(address)].roots[region_of(address)],
                                                [address](const RunNode& run) { return run.address <= address; });
      if (found != kNoRun) return found;
    }
    return last_before_region(address);
  }
  // Has the processor bring what that looks at first.
  void fetch(Sectors address) const noexcept {
    if (is_provided(address)) prefetch(&arenas_[arena_of(address)].roots[region_of(address)]);
  }
  // And what it looks at next, as far as that is known then.
  void fetch_first(Sectors address) const noexcept {
    if (!is_provided(address)) return;
    if (const RunNumber root = arenas_[arena_of(address)].roots[region_of(address)]; root != kNoRun)
      prefetch(&nodes_[root]);
  }
  // Throws std::logic_error where the index is not in order. Returns how many runs there are. O(n), and O(regions).
  [[nodiscard]] std::size_t audit() const;

 private:
  static constexpr int kRegionBits = 12;
  using Bits = BitTree<5>;
  static_assert(std::size_t{1} << (kArenaBits - kRegionBits) <= Bits::kMost);
  struct Arena {
    GrowingList<RunNumber> roots;
    Bits has;
  };
  using Tree =
      RunTree<&RunNode::by_address, [](const RunNode& a, const RunNode& b) noexcept { return a.address < b.address; }>;

  [[nodiscard]] static std::size_t arena_of(Sectors address) noexcept {
    return static_cast<std::size_t>(address >> kArenaBits);
  }
  [[nodiscard]] static std::size_t region_of(Sectors address) noexcept {
    return static_cast<std::size_t>(address & ((Sectors{1} << kArenaBits) - 1)) >> kRegionBits;
  }
  [[gnu::noinline]] void grow(Sectors address);
  [[nodiscard]] RunNumber last_before_region(Sectors address) const noexcept;

  RunNodes& nodes_;
  std::vector<Arena> arenas_;
};

}  // namespace cistern
