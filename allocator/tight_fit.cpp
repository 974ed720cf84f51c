#include "allocator/tight_fit.h"

#include <algorithm>
#include <optional>
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

// The best position so far.
struct Best {
  std::int64_t pages;
  int change;  // of fragments
  Sectors size;
  Sectors begin;
  RunNumber run;
};

// Whether a position in this run can be better than one that touches no whole page: it uses up a fragment, or parts of
// the two at one page edge.
bool may_leave_less(Range run, Sectors sectors, PageSize page, int change) {
  const Sectors head = page.up(run.begin) - run.begin;
  const Sectors tail = page.offset(run.end);
  return head == sectors || tail == sectors || (change >= 0 && run.end - run.begin == head + tail);
}

// No position in the run touches fewer whole pages: it would begin with more of a fragment than there is.
std::int64_t fewest_pages(Range run, Sectors sectors, PageSize page) {
  const Sectors first = page.up(run.begin);
  const Sectors last = page.down(run.end);
  if (first >= last) return 0;
  const Sectors fragment = std::max(first - run.begin, run.end - last);
  return sectors <= fragment ? 0 : std::min(page.whole(last - first), page.covering(sectors - fragment));
}

// Looks at the run's ends and its first and last page edge. Runs come by size.
void look_at(RunNumber number, Range run, Sectors sectors, PageSize page, std::optional<Best>& best) {
  const Sectors size = run.end - run.begin;
  const auto consider = [&](std::int64_t pages, int change, Sectors begin) {
    if (!best || std::tie(pages, change, size, begin) < std::tie(best->pages, best->change, best->size, best->begin))
      best = {pages, change, size, begin, number};
  };
  // Within a page all positions are alike.
  if (page.up(run.begin) > run.end) return consider(0, 0, run.begin);
  const int before = fragments_of(run, page);
  for (const Sectors begin : {run.begin, run.end - sectors, page.up(run.begin), page.down(run.end) - sectors}) {
    const Range block{begin, begin + sectors};
    if (block.begin < run.begin || block.end > run.end) continue;
    const std::int64_t pages = touched_whole_pages(run, block, page);
    if (best && pages > best->pages) continue;
    const int change = fragments_of({run.begin, block.begin}, page) + fragments_of({block.end, run.end}, page) - before;
    consider(pages, change, begin);
  }
}

}  // namespace

TightFit tight_fit(const RunsBySize& runs, StreamNumber stream, Sectors sectors, PageSize page, int most) {
  std::optional<Best> best;
  TightFit exact;
  runs.for_each_from(stream, sectors, [&](RunNumber number, const RunNode& free) {
    if (free.sectors == sectors) {
      exact = {free.address, 0, number, true};
      return false;
    }
    const bool is_last = --most == 0;
    const Range run{free.address, free.end()};
    if (best && best->pages == 0) {
      if (best->change == kBestChange) return false;
      if (!may_leave_less(run, sectors, page, best->change)) return !is_last;
    } else if (best) {
      const std::int64_t pages = fewest_pages(run, sectors, page);
      if (pages > best->pages || (pages == best->pages && best->change == kBestChange)) return !is_last;
    }
    look_at(number, run, sectors, page, best);
    return !is_last;
  });
  if (exact) return exact;
  if (!best) return {};
  return {best->begin, best->pages, best->run, false};
}

}  // namespace cistern
