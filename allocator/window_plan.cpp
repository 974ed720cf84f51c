#include "allocator/window_plan.h"

#include <algorithm>
#include <tuple>

namespace cistern {
namespace {

bool is_better(const WindowPlan& a, const WindowPlan& b) {
  return std::tie(a.pages, a.cut, a.left) < std::tie(b.pages, b.cut, b.left);
}

class WindowSearch {
 public:
  WindowSearch(std::span<const Fragment> endings, std::span<const Fragment> beginnings, Sectors sectors, PageSize page)
      : endings_(endings), beginnings_(beginnings), sectors_(sectors), page_(page) {}

  // All ways with so many whole pages: fragments have to hold the rest.
  void consider(std::int64_t pages) {
    const Sectors rest = sectors_ - page_.sectors(pages);
    if (rest > 2 * page_.sectors()) return;
    consider_pairs(pages, rest);
    if (const Fragment* part = least(endings_, rest)) consider_part(pages, rest, *part, true);
    if (const Fragment* part = least(beginnings_, rest)) consider_part(pages, rest, *part, false);
  }
  [[nodiscard]] const std::optional<WindowPlan>& best() const { return best_; }

 private:
  void offer(const WindowPlan& way) {
    if (!best_ || is_better(way, *best_)) best_ = way;
  }
  [[nodiscard]] WindowCut unless_negligible(WindowCut cut, Sectors left) const {
    return left <= page_.sectors() / 64 ? WindowCut::none : cut;
  }
  static const Fragment* least(std::span<const Fragment> parts, Sectors sectors) {
    const auto found = std::lower_bound(parts.begin(), parts.end(), sectors,
                                        [](const Fragment& part, Sectors count) { return part.sectors < count; });
    return found == parts.end() ? nullptr : &*found;
  }

  // An ending used up, and the least beginning that holds what is missing.
  void consider_pairs(std::int64_t pages, Sectors rest) {
    std::size_t first = beginnings_.size();
    for (const Fragment& ending : endings_) {
      const Sectors missing = rest - ending.sectors;
      if (missing <= 0) break;
      while (first > 0 && beginnings_[first - 1].sectors >= missing) --first;
      // Not both of one page: the next.
      std::size_t at = first;
      if (at < beginnings_.size() && beginnings_[at].slot == ending.slot) ++at;
      if (at == beginnings_.size()) continue;
      const Fragment& beginning = beginnings_[at];
      const Sectors left = beginning.sectors - missing;
      offer({pages, ending.sectors, missing, ending, beginning, unless_negligible(WindowCut::two_parts, left), left});
    }
  }

  // One fragment that holds the rest: a part of it is used, or all of it and less of the whole pages.
  void consider_part(std::int64_t pages, Sectors rest, const Fragment& part, bool is_ending) {
    const Sectors left = part.sectors - rest;
    if (rest > 0)
      offer({pages, is_ending ? rest : 0, is_ending ? 0 : rest, part, part,
             unless_negligible(WindowCut::one_part, left), left});
    if (pages == 0 || part.sectors > sectors_) return;
    const Sectors skipped = is_ending ? 0 : left;
    offer({pages, is_ending ? part.sectors : 0, is_ending ? 0 : part.sectors, part, part, WindowCut::whole_page, left,
           skipped});
  }

  std::span<const Fragment> endings_;
  std::span<const Fragment> beginnings_;
  Sectors sectors_;
  PageSize page_;
  std::optional<WindowPlan> best_;
};

}  // namespace

std::optional<WindowPlan> plan_window(std::span<const Fragment> endings, std::span<const Fragment> beginnings,
                                      Sectors sectors, PageSize page) {
  WindowSearch search(endings, beginnings, sectors, page);
  const std::int64_t whole = page.whole(sectors);
  if (whole > 0) search.consider(whole - 1);
  search.consider(whole);
  return search.best();
}

}  // namespace cistern
