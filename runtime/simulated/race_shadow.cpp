#include "runtime/simulated/race_shadow.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cistern::simulated {
namespace {

bool are_ordered(const RaceOperation& a, const RaceOperation& b) {
  return &a == &b || a.moment.is_before(b.moment) || b.moment.is_before(a.moment);
}

}  // namespace

void RaceShadow::access(std::uint64_t begin, std::uint64_t end, const RaceAccess& access, const Conflict& conflict) {
  if (begin >= end) return;
  accesses_.split(begin);
  accesses_.split(end);
  fill_gaps(begin, end);
  auto& pieces = accesses_.pieces();
  const RaceOperation& later = *access.operation;
  for (auto piece = pieces.lower_bound(begin); piece != pieces.end() && piece->first < end; ++piece) {
    Accesses& kept = piece->second.value;
    for (const RaceAccess& earlier : kept) {
      if ((access.writes || earlier.writes) && !are_ordered(*earlier.operation, later)) {
        conflict(earlier, piece->first, piece->second.end);
      }
    }
    kept.erase(std::remove_if(kept.begin(), kept.end(),
                              [&](const RaceAccess& earlier) {
                                return (access.writes || !earlier.writes) &&
                                       earlier.operation->moment.is_before(later.moment);
                              }),
               kept.end());
    // What a running function touches is told late: a later one may have been noted already.
    const bool is_covered = std::any_of(kept.begin(), kept.end(), [&](const RaceAccess& other) {
      return (other.writes || !access.writes) && other.operation != access.operation &&
             later.moment.is_before(other.operation->moment);
    });
    if (!is_covered) kept.push_back(access);
  }
  merge(begin, end);
}

void RaceShadow::fill_gaps(std::uint64_t begin, std::uint64_t end) {
  auto& pieces = accesses_.pieces();
  auto piece = pieces.lower_bound(begin);
  while (begin < end) {
    if (piece != pieces.end() && piece->first == begin) {
      begin = piece->second.end;
      ++piece;
      continue;
    }
    const std::uint64_t gap_end = piece == pieces.end() ? end : std::min(end, piece->first);
    pieces.emplace_hint(piece, begin, RaceIntervalMap<Accesses>::Piece{gap_end, {}});
    begin = gap_end;
  }
}

// Keeps the pieces few: a kernel over a whole tensor undoes the splits of those over its parts.
void RaceShadow::merge(std::uint64_t begin, std::uint64_t end) {
  auto& pieces = accesses_.pieces();
  auto piece = pieces.lower_bound(begin);
  if (piece != pieces.begin()) --piece;
  while (piece != pieces.end()) {
    const auto next = std::next(piece);
    if (next == pieces.end() || next->first > end) return;
    if (next->first == piece->second.end && next->second.value == piece->second.value) {
      piece->second.end = next->second.end;
      pieces.erase(next);
    } else {
      piece = next;
    }
  }
}

void RaceShadow::for_each(std::uint64_t begin, std::uint64_t end, const Conflict& visit) const {
  accesses_.for_each(begin, end, [&](std::uint64_t from, std::uint64_t to, const Accesses& kept) {
    for (const RaceAccess& access : kept) visit(access, from, to);
  });
}

void RaceShadow::remove_if(std::uint64_t begin, std::uint64_t end, const std::function<bool(const RaceAccess&)>& dead) {
  accesses_.split(begin);
  accesses_.split(end);
  auto& pieces = accesses_.pieces();
  for (auto piece = pieces.lower_bound(begin); piece != pieces.end() && piece->first < end; ++piece) {
    Accesses& kept = piece->second.value;
    kept.erase(std::remove_if(kept.begin(), kept.end(), dead), kept.end());
  }
}

}  // namespace cistern::simulated
