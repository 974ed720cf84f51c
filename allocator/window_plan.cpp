#include "allocator/window_plan.h"

#include <algorithm>
#include <tuple>

namespace cistern {
namespace {

bool is_better(const WindowPlan& a, const WindowPlan& b) {
  return std::tie(a.pages, a.cut, a.left) < std::tie(b.pages, b.cut, b.left);
}

std::optional<Sectors> size_from(FragmentLists lists, Sectors sectors) {
  std::optional<Sectors> least;
  for (const Fragments* list : lists)
    if (const auto size = list->size_from(sectors); size && (!least || *size < *least)) least = size;
  return least;
}

// Of those of just this size: the lowest address at or behind this one.
const Fragment* first_of(FragmentLists lists, Sectors sectors, Sectors address) {
  const Fragment* first = nullptr;
  for (const Fragments* list : lists)
    if (const Fragment* part = list->first_of(sectors, address))
      if (first == nullptr || part->address < first->address) first = part;
  return first;
}

// By size, then address.
const Fragment* least_from(FragmentLists lists, Sectors sectors) {
  const auto size = size_from(lists, sectors);
  return size ? first_of(lists, *size, 0) : nullptr;
}
const Fragment* next_behind(FragmentLists lists, const Fragment& part) {
  const Fragment* same = first_of(lists, part.sectors, part.address + 1);
  return same != nullptr ? same : least_from(lists, part.sectors + 1);
}

class WindowSearch {
 public:
  WindowSearch(FragmentLists endings, FragmentLists beginnings, Sectors sectors, PageSize page)
      : endings_(endings), beginnings_(beginnings), sectors_(sectors), page_(page) {}

  // All ways with so many whole pages: fragments have to hold the rest.
  void consider(std::int64_t pages) {
    const Sectors rest = sectors_ - page_.sectors(pages);
    if (rest > 2 * page_.sectors()) return;
    consider_pairs(pages, rest);
    if (const Fragment* part = least_from(endings_, rest)) consider_part(pages, rest, *part, true);
    if (const Fragment* part = least_from(beginnings_, rest)) consider_part(pages, rest, *part, false);
  }
  [[nodiscard]] const std::optional<WindowPlan>& best() const { return best_; }

 private:
  void offer(const WindowPlan& way) {
    if (!best_ || is_better(way, *best_)) best_ = way;
  }
  [[nodiscard]] WindowCut unless_negligible(WindowCut cut, Sectors left) const {
    return left <= page_.sectors() / 64 ? WindowCut::none : cut;
  }
  [[nodiscard]] WindowPlan pair_of(std::int64_t pages, Sectors rest, const Fragment& ending,
                                   const Fragment& beginning) const {
    const Sectors missing = rest - ending.sectors;
    const Sectors left = beginning.sectors - missing;
    return {pages, ending.sectors, missing, ending, beginning, unless_negligible(WindowCut::two_parts, left), left};
  }

  // An ending used up, and the least beginning that holds what is missing. Of endings of one size the lowest, unless
  // all that is wrong with it is that the beginning is in its page. Less than nothing is not left: that ends it.
  void consider_pairs(std::int64_t pages, Sectors rest) {
    std::optional<Sectors> least_left;
    for (auto size = size_from(endings_, rest - page_.sectors() + 1); size && *size < rest;
         size = size_from(endings_, *size + 1)) {
      const auto other = size_from(beginnings_, rest - *size);
      if (!other) continue;
      const Sectors left = *other - (rest - *size);
      if (least_left && left >= *least_left) continue;
      const Fragment* const ending = first_of(endings_, *size, 0);
      const Fragment* const beginning = first_of(beginnings_, *other, 0);
      if (ending == nullptr || beginning == nullptr) continue;
      if (!(ending->slot == beginning->slot))
        offer(pair_of(pages, rest, *ending, *beginning));
      else
        offer_beside(pages, rest, *ending, *beginning);
      if (best_ && best_->pages == pages) least_left = best_->left;
      if (least_left == Sectors{0}) return;
    }
  }
  // Not both of one page: the next of the one, or of the other if it is as large.
  void offer_beside(std::int64_t pages, Sectors rest, const Fragment& ending, const Fragment& beginning) {
    if (const Fragment* next = next_behind(beginnings_, beginning)) offer(pair_of(pages, rest, ending, *next));
    if (const Fragment* next = first_of(endings_, ending.sectors, ending.address + 1))
      offer(pair_of(pages, rest, *next, beginning));
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

  FragmentLists endings_;
  FragmentLists beginnings_;
  Sectors sectors_;
  PageSize page_;
  std::optional<WindowPlan> best_;
};

}  // namespace

std::optional<WindowPlan> plan_window(FragmentLists endings, FragmentLists beginnings, Sectors sectors, PageSize page) {
  WindowSearch search(endings, beginnings, sectors, page);
  const std::int64_t whole = page.whole(sectors);
  if (whole > 0) search.consider(whole - 1);
  if (!search.best()) search.consider(whole);
  return search.best();
}

}  // namespace cistern
