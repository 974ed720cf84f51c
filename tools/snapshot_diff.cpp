#include "tools/snapshot_diff.h"

#include <algorithm>
#include <optional>

namespace cistern {
namespace {

std::optional<Change> change_of(const BlockFigures& before, const BlockFigures& after) {
  if (before.blocks == 0) return Change::appeared;
  if (after.blocks == 0) return Change::gone;
  if (before.bytes != after.bytes) return after.bytes > before.bytes ? Change::grown : Change::shrunk;
  if (before.blocks != after.blocks) return after.blocks > before.blocks ? Change::grown : Change::shrunk;
  return std::nullopt;
}

std::int64_t magnitude(const OwnerChange& change) { return change.bytes() < 0 ? -change.bytes() : change.bytes(); }

}  // namespace

const char* to_string(Change change) noexcept {
  switch (change) {
    case Change::appeared:
      return "appeared";
    case Change::grown:
      return "grown";
    case Change::shrunk:
      return "shrunk";
    case Change::gone:
      break;
  }
  return "gone";
}

OwnerChanges compare_owners(const OwnerFigures& before, const OwnerFigures& after) {
  OwnerChanges found;
  const auto compare = [&found](Owner owner, const BlockFigures& a, const BlockFigures& b) {
    if (const auto change = change_of(a, b))
      found.changes.push_back({owner, *change, a, b});
    else
      ++found.unchanged;
  };
  for (const auto& [owner, figures] : before) {
    const auto later = after.find(owner);
    compare(owner, figures, later == after.end() ? BlockFigures() : later->second);
  }
  for (const auto& [owner, figures] : after)
    if (!before.contains(owner)) compare(owner, BlockFigures(), figures);
  // Stable: those of one size stay in the order in which the files have them.
  std::ranges::stable_sort(found.changes, [](const OwnerChange& a, const OwnerChange& b) {
    return magnitude(a) != magnitude(b) ? magnitude(a) > magnitude(b) : a.owner < b.owner;
  });
  return found;
}

}  // namespace cistern
