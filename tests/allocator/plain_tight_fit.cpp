#include "tests/allocator/plain_tight_fit.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace cistern {
namespace {

int plain_fragments_of(Sectors begin, Sectors end, PageSize page) {
  if (begin == end) return 0;
  if (page.up(begin) > page.down(end)) return 3;
  return (page.offset(begin) != 0 ? 2 : 0) + (page.offset(end) != 0 ? 2 : 0);
}

}  // namespace

std::int64_t plain_touched_pages(const FreeRun& run, Sectors begin, Sectors sectors, PageSize page) {
  std::int64_t count = 0;
  for (Sectors at = page.up(run.address); at + page.sectors() <= run.end(); at += page.sectors())
    if (begin < at + page.sectors() && begin + sectors > at) ++count;
  return count;
}

std::optional<TightFit> plain_tight_fit(std::vector<FreeRun> runs, Sectors sectors, PageSize page, int most) {
  std::erase_if(runs, [sectors](const FreeRun& run) { return run.sectors < sectors; });
  std::sort(runs.begin(), runs.end(), [](const FreeRun& a, const FreeRun& b) {
    return std::tie(a.sectors, a.address) < std::tie(b.sectors, b.address);
  });
  if (runs.size() > static_cast<std::size_t>(most)) runs.resize(static_cast<std::size_t>(most));
  std::optional<std::tuple<std::int64_t, int, Sectors, Sectors>> best;
  for (const FreeRun& run : runs) {
    if (run.sectors == sectors) return TightFit{.address = run.address, .is_exact = true};
    for (const Sectors begin :
         {run.address, run.end() - sectors, page.up(run.address), page.down(run.end()) - sectors}) {
      if (begin < run.address || begin + sectors > run.end()) continue;
      const int change = plain_fragments_of(run.address, begin, page) +
                         plain_fragments_of(begin + sectors, run.end(), page) -
                         plain_fragments_of(run.address, run.end(), page);
      const std::tuple score{plain_touched_pages(run, begin, sectors, page), change, run.sectors, begin};
      if (!best || score < *best) best = score;
    }
  }
  if (!best) return std::nullopt;
  return TightFit{.address = std::get<3>(*best), .pages = std::get<0>(*best)};
}

}  // namespace cistern
