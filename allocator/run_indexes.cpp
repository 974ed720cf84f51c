// What the indexes of free runs seldom do.

#include <algorithm>
#include <cstddef>
#include <memory>

#include "allocator/runs_by_address.h"
#include "allocator/runs_by_size.h"
#include "stats/invariant.h"

namespace cistern {

void RunsByAddress::grow(Sectors address) {
  if (arenas_.size() <= arena_of(address)) arenas_.resize(arena_of(address) + 1);
  Arena& arena = arenas_[arena_of(address)];
  // By half at least, so that they are seldom moved. The roots last: what is said of their room is true of both.
  const std::size_t regions = std::max(region_of(address) + 1, arena.roots.size() + arena.roots.size() / 2);
  arena.has.provide(regions);
  arena.roots.reserve(regions);
  arena.roots.resize(regions, kNoRun);
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

void RunsBySize::add_streams(StreamNumber last) {
  while (streams_.size() <= static_cast<std::size_t>(last)) streams_.push_back(std::make_unique<Bins>());
}

std::size_t RunsBySize::audit() const {
  std::size_t count = 0;
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    const Bins& bins = *streams_[stream];
    for (std::size_t bin = 0; bin < kBins; ++bin) {
      const RunNumber root = bins.roots[bin];
      require((bins.has.next(bin) == bin) == (root != kNoRun), "which bins have free runs");
      if (root == kNoRun) continue;
      require(Tree::is_sound(nodes_, root), "free runs of a bin are not in order");
      for (RunNumber run = Tree::first(nodes_, root); run != kNoRun; run = Tree::next(nodes_, run), ++count)
        require(nodes_[run].stream == static_cast<StreamNumber>(stream) && bin_of(nodes_[run].sectors) == bin,
                "a free run is in a bin of other sizes, or of another stream");
    }
  }
  return count;
}

}  // namespace cistern
