#include "allocator/tight_fit.h"

#include <algorithm>
#include <tuple>

namespace cistern {
namespace {

struct Range {
  Sectors begin;
  Sectors end;
};

// Pages that lie in `run` whole and that `block` touches.
std::int64_t touched_whole_pages(Range run, Range block, PageSize page) {
  const Sectors begin = std::max(page.up(run.begin), page.down(block.begin));
  const Sectors end = std::min(page.down(run.end), page.up(block.end));
  return end > begin ? page.whole(end - begin) : 0;
}

// How much a free run is in fragments: 2 for one that reaches a page edge, so that a window may begin or end with
// it, 3 for one in the middle of a page, which no window takes.
int fragments_of(Range run, PageSize page) {
  if (run.begin >= run.end) return 0;
  const Sectors first = page.up(run.begin);
  const Sectors last = page.down(run.end);
  if (first > last) return 3;
  return (run.begin < first ? 2 : 0) + (last < run.end ? 2 : 0);
}

// No position has less: it would have to use up a run's fragments at both ends.
constexpr int kBestChange = -2;

// More runs are not looked at: among many there is one like it before, and requests that do not come again would walk
// over hundreds each time.
constexpr int kMostRuns = 32;

}  // namespace

std::optional<TightFit> tight_fit(const FreeRuns::BySize& runs, Sectors sectors, PageSize page) {
  using Score = std::tuple<std::int64_t, int, Sectors, Sectors>;
  std::optional<Score> best;
  int looked_at = 0;
  for (auto at = runs.lower_bound({sectors, 0}); at != runs.end() && looked_at < kMostRuns; ++at, ++looked_at) {
    const auto& [size, address] = *at;
    if (size == sectors) return TightFit{address, 0};
    if (best && std::get<0>(*best) == 0 && std::get<1>(*best) == kBestChange) break;
    const Range run{address, address + size};
    const int before = fragments_of(run, page);
    for (const Sectors begin : {run.begin, run.end - sectors, page.up(run.begin), page.down(run.end) - sectors}) {
      const Range block{begin, begin + sectors};
      if (block.begin < run.begin || block.end > run.end) continue;
      const int change =
          fragments_of({run.begin, block.begin}, page) + fragments_of({block.end, run.end}, page) - before;
      const Score score{touched_whole_pages(run, block, page), change, size, begin};
      if (!best || score < *best) best = score;
    }
  }
  if (!best) return std::nullopt;
  return TightFit{std::get<3>(*best), std::get<0>(*best)};
}

}  // namespace cistern
