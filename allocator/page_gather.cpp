// Placement where no free run serves: what is gathered, and what is created.

#include <algorithm>

#include "allocator/page_placement.h"

namespace cistern {
namespace {

// A block whose last page would be filled to 1 - 1/64 begins at a page edge rather than in a tail.
constexpr Sectors kFilled = 64;
// Memory may exceed what was ever live by this share before whole free handles are gathered.
constexpr Sectors kShareOverPeak = 500;
// A handle is at most this share of the request that it is made for: what is left of it serves others badly.
constexpr Sectors kLeastHandlesOfRequest = 96;

}  // namespace

// Free bytes at the end of the arena with which the block can begin.
Sectors PagePlacement::tail_of(const PageRequest& request) {
  const auto run = free_.ending_at(table_.end_of(arena_of(request.stream)), request.stream);
  if (!run) return 0;
  const PageSize page = table_.page();
  const bool fills_pages =
      request.sectors > page.sectors() / 2 && (page.up(request.sectors) - request.sectors) * kFilled <= request.sectors;
  return fills_pages ? page.down(run->sectors) : run->sectors;
}

std::int64_t PagePlacement::pages_within_peak(const PageRequest& request) const {
  const Sectors peak = std::max(peak_live_, live_ + request.sectors);
  return std::min(table_.page().whole(peak + peak / kShareOverPeak), page_limit_);
}

// Small requests create some pages at once: a set-access for each would cost more than they are.
std::int64_t PagePlacement::with_growth(const PageRequest& request, std::int64_t pages) const {
  const std::int64_t all = table_.pages();
  if (request.sectors >= table_.page().sectors(8)) return pages;
  const std::int64_t share = std::max(all / 512, std::min<std::int64_t>(4, all / 64));
  return std::max(pages, std::min({share, page_limit_ - all, std::int64_t{64}}));
}

std::int32_t PagePlacement::pages_of_new(const PageRequest& request, std::int64_t missing) const {
  std::int32_t pages = 1;
  while (pages * 2 <= missing && table_.page().sectors(pages * 2) <= request.sectors / kLeastHandlesOfRequest)
    pages *= 2;
  return pages;
}

void PagePlacement::add_mapped(PagePlan& plan, PageTable::Handle handle, bool moves_home) {
  const std::int32_t pages = table_.pages_of(handle);
  const Sectors address = table_.reserve(arena_of(plan.request.stream), pages);
  if (plan.gather.empty()) plan.gather.address = address;
  plan.gather.pages += pages;
  plan.gather.steps.push_back({handle, pages, address, false, moves_home});
}

void PagePlacement::add_donors(PagePlan& plan, const std::vector<FreeHandle>& donors) {
  for (const FreeHandle& donor : donors) {
    free_.take(donor.address, table_.sectors_of(donor.handle), plan.taken);
    add_mapped(plan, donor.handle, true);
  }
}

// With `may_round_up` handles are as large as thrift asks for, and may be more than `pages` in all.
void PagePlacement::add_new(PagePlan& plan, std::int64_t pages, bool may_round_up) {
  DriverSpending spending = spending_;
  spending.mapped(static_cast<std::int64_t>(plan.gather.steps.size()));
  while (pages > 0) {
    std::int32_t count = pages_of_new(plan.request, pages);
    if (may_round_up) {
      const std::int32_t least = spending.least_handle(table_.pages());
      if (count < least && least <= page_limit_ - table_.pages()) count = least;
    }
    add_mapped(plan, table_.add_handle(count), true);
    plan.gather.steps.back().is_new = true;
    spending.created(1);
    spending.mapped(1);
    pages -= count;
  }
}

void PagePlacement::plan_miss(PagePlan& plan) {
  const PageRequest& request = plan.request;
  const PageSize page = table_.page();
  const PageTable::Arena arena = arena_of(request.stream);
  const Sectors end = table_.end_of(arena);
  const Sectors tail = tail_of(request);
  const std::int64_t needed = page.covering(request.sectors - tail);

  std::vector<FreeHandle> donors;
  std::int64_t created = needed;
  if (table_.pages() + needed > pages_within_peak(request)) {
    donors = choose_donors(free_handles(free_, table_, request.stream, end - tail, end), needed, true);
    for (const FreeHandle& donor : donors) created -= donor.pages;
    if (created > 0) {
      if (request.has_pending) {
        plan.kind = PlanKind::awaits_pending;
        return;
      }
      const bool is_refused = created > page_limit_ - table_.pages();
      if ((is_refused || request.sectors > page.sectors() / 2) && plan_window_of_parts(plan, is_refused)) {
        plan.keeps_length = true;
        return;
      }
      if (is_refused) return;
    }
  }
  plan.kind = PlanKind::placed;
  plan.address = end - tail;
  plan.keeps_exact = true;
  plan.keeps_length = true;
  if (tail > 0) free_.take(end - tail, tail, plan.taken);
  add_donors(plan, donors);
  if (created > 0) add_new(plan, with_growth(request, created), true);
  ++counts_.misses;
}

bool PagePlacement::plan_window_of_parts(PagePlan& plan, bool of_all_streams) {
  const PageRequest& request = plan.request;
  const FreeFragments fragments = free_fragments(free_, table_, request.stream, of_all_streams);
  const auto window = plan_window(fragments.endings, fragments.beginnings, request.sectors, table_.page());
  if (!window) return false;
  const PageTable::Arena arena = arena_of(request.stream);
  const std::vector<FreeHandle> donors =
      choose_donors(free_handles(free_, table_, request.stream, 0, 0), window->pages, false);
  std::int64_t created = window->pages;
  for (const FreeHandle& donor : donors) created -= donor.pages;
  if (created > page_limit_ - table_.pages()) return false;

  plan.kind = PlanKind::placed;
  plan.keeps_exact = true;
  if (window->head > 0) {
    const Fragment& ending = window->ending;
    free_.take(ending.address + ending.sectors - window->head, window->head, plan.taken);
    add_mapped(plan, ending.slot.handle, false);
  }
  plan.address = table_.end_of(arena) - window->head + window->skipped;
  add_donors(plan, donors);
  add_new(plan, created, false);
  if (window->tail > 0) {
    free_.take(window->beginning.address, window->tail, plan.taken);
    add_mapped(plan, window->beginning.slot.handle, false);
  }
  ++counts_.chosen;
  return true;
}

// The driver has done its part: the mappings are recorded, and what the block does not take of the handles is free.
void PagePlacement::adopt(const PagePlan& plan) {
  const Sectors end = plan.address + plan.request.sectors;
  for (const Gather::Step& step : plan.gather.steps) {
    table_.map(step.handle, step.address);
    spending_.mapped(1);
    if (step.is_new) spending_.created(1);
    if (!step.moves_home) continue;
    table_.move_home(step.handle, step.address);
    const Sectors step_end = step.address + table_.page().sectors(step.pages);
    const Sectors before = std::min(step_end, plan.address);
    const Sectors behind = std::max(step.address, end);
    if (before > step.address) free_.give(step.address, before - step.address, plan.request.stream);
    if (behind < step_end) free_.give(behind, step_end - behind, plan.request.stream);
  }
  spending_.allowed();
}

void PagePlacement::abandon(const PagePlan& plan) {
  if (plan.gather.empty()) return;
  for (const FreeRun& piece : plan.taken) free_.give(piece.address, piece.sectors, piece.stream);
  table_.cancel(plan.gather.address, plan.gather.pages);
  for (const Gather::Step& step : plan.gather.steps)
    if (step.is_new) table_.remove_handle(step.handle);
}

}  // namespace cistern
