// Requests that their stream's own free bytes serve, and that the log does not know: what most requests are where sizes
// do not come again. They need nothing of others, and no driver.

#include <new>
#include <utility>

#include "allocator/page_placement.h"

namespace cistern {

void PagePlan::begin_anew(const PageRequest& of) {
  std::vector<FreeRun> kept = std::move(taken);
  kept.clear();
  *this = PagePlan();
  taken = std::move(kept);
  request = of;
}

// Nothing: `plan` would map handles, or take bytes of others where that may be had.
std::optional<PagePlacement::Choice> PagePlacement::choose_own_bytes(const PagePlan& plan) {
  std::optional<TightFit> fit;
  auto choice = choose_free_bytes(plan, fit);
  if (!choice && fit && !is_worth_a_window(plan.request)) choice = {fit->address, &PlacementCounts::fits};
  if (!choice || choice->count == &PlacementCounts::fits) return choice;  // fits are in the stream's own runs
  const PageRequest alone{plan.request.sectors, plan.request.stream, false};
  return is_usable(choice->address, alone) ? choice : std::nullopt;
}

PagePlan* PagePlacement::plan_of_own(const PageRequest& request) noexcept {
  if (!is_open() || retires() || may_begin_retirement()) return nullptr;
  PagePlan& plan = own_plan_;
  try {
    plan.begin_anew(request);
    set_positions(plan);
    log_.fetch(plan.positions.front(), request.sectors);
    catch_up();
    const std::optional<Choice> choice = choose_own_bytes(plan);
    if (!choice) return nullptr;
    provide_place();
    place_at(plan, *choice);
    let_out(plan);
    return &plan;
  } catch (const std::bad_alloc&) {
    abandon(plan);
    return nullptr;
  }
}

}  // namespace cistern
