// What the indexes of free runs seldom do.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "allocator/runs_by_address.h"
#include "allocator/runs_by_size.h"
#include "stats/invariant.h"

namespace cistern {

void RunsByAddress::grow(Sectors address) {
  if (arenas_.size() <= arena_of(address)) arenas_.resize(arena_of(address) + 1);
  Arena& arena = arenas_[arena_of(address)];
  // By half at least, so that it is seldom. What is said of the roots' room is true of both.
  const std::size_t regions = std::max(region_of(address) + 1, arena.roots.size() + arena.roots.size() / 2);
  arena.roots.provide(regions);
  arena.has.provide(regions);
  while (arena.roots.size() != regions) arena.roots.push_back(kNoRun);
}

RunNumber RunsByAddress::last_before_region(Sectors address) const noexcept {
  for (std::size_t at = std::min(arena_of(address) + 1, arenas_.size()); at-- != 0;) {
    const Arena& arena = arenas_[at];
    const bool is_its_own = at == arena_of(address);
    if (arena.has.empty() || (is_its_own && region_of(address) == 0)) continue;
    const std::size_t region = arena.has.previous(is_its_own ? region_of(address) - 1 : Bits::kNone);
    if (region != Bits::kNone) return Tree::last(nodes_, arena.roots[region]);
  }
  return kNoRun;
}

std::size_t RunsByAddress::audit() const {
  std::size_t count = 0;
  for (std::size_t at = 0; at < arenas_.size(); ++at)
    for (std::size_t region = 0; region < arenas_[at].roots.size(); ++region) {
      const RunNumber root = arenas_[at].roots[region];
      require((arenas_[at].has.next(region) == region) == (root != kNoRun), "which regions have free runs");
      if (root == kNoRun) continue;
      require(Tree::is_sound(nodes_, root), "free runs of a region are not in order");
      for (RunNumber run = Tree::first(nodes_, root); run != kNoRun; run = Tree::next(nodes_, run), ++count)
        require(arena_of(nodes_[run].address) == at && region_of(nodes_[run].address) == region,
                "a free run is in a region where it does not begin");
    }
  return count;
}

void RunsBySize::part(StreamNumber stream) {
  auto bins = std::make_unique<Bins>();
  OfStream& its = of(stream);
  while (its.all != kNoRun) {
    const RunNumber run = its.all;
    Tree::erase(nodes_, its.all, run);
    add(*bins, run);
  }
  its.bins = std::move(bins);
}

std::size_t RunsBySize::audit() const {
  std::size_t count = 0;
  const auto audit_tree = [&](RunNumber root, std::size_t stream, auto&& is_of) {
    std::size_t runs = 0;
    require(Tree::is_sound(nodes_, root), "free runs by size are not in order");
    for (RunNumber run = root == kNoRun ? kNoRun : Tree::first(nodes_, root); run != kNoRun;
         run = Tree::next(nodes_, run), ++runs)
      require(nodes_[run].stream == static_cast<StreamNumber>(stream) && is_of(nodes_[run]),
              "a free run is in a bin of other sizes, or of another stream");
    return runs;
  };
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    const OfStream& its = streams_[stream];
    std::size_t runs = audit_tree(its.all, stream, [&its](const RunNode&) { return its.bins == nullptr; });
    for (std::size_t bin = 0; bin < kBins && its.bins != nullptr; ++bin) {
      const RunNumber root = its.bins->roots[bin];
      require((its.bins->has.next(bin) == bin) == (root != kNoRun), "which bins have free runs");
      runs += audit_tree(root, stream, [bin](const RunNode& run) { return bin_of(run.sectors) == bin; });
    }
    require(runs == its.runs, "the count of a stream's free runs is not their number");
    count += runs;
  }
  return count;
}

}  // namespace cistern
