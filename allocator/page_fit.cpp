// Requests that their stream's own free bytes serve, and that the log does not know: what most requests are where sizes
// do not come again. They need nothing of others, and no driver.

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/page_placement.h"

namespace cistern {

void PagePlan::begin_anew(const PageRequest& of) noexcept {
  static_cast<PlanTerms&>(*this) = PlanTerms();
  request = of;
  gather.address = 0;
  gather.pages = 0;
  gather.steps.clear();
  owners.clear();
  taken.clear();
}

// Nothing: `plan` would map handles, or take bytes of others where that may be had.
std::optional<PagePlacement::Choice> PagePlacement::choose_own_bytes(PagePlan& plan) {
  auto choice = choose_free_bytes(plan);
  if (!choice && plan.fit && !is_worth_a_window(plan.request)) choice = {plan.fit->address, &PlacementCounts::fits};
  if (!choice || choice->count == &PlacementCounts::fits) return choice;  // fits are in the stream's own runs
  const PageRequest alone{plan.request.sectors, plan.request.stream, false};
  return is_usable(choice->address, alone) ? choice : std::nullopt;
}

// Each piece of one's own free bytes at home is of one run, which may become two, and room is kept for its return.
bool PagePlacement::has_room_for(const PagePlan& plan, const Choice& choice) const {
  std::size_t pieces = 0;
  table_.for_each_piece(choice.address, plan.request.sectors,
                        [&](Sectors, Sectors) { return ++pieces <= kPiecesOfOwn; });
  return pieces <= kPiecesOfOwn && free_.has_room(2 * pieces + kRunsOfBlock);
}

PagePlan* PagePlacement::plan_of_own(const PageRequest& request) noexcept {
  if (!is_open() || retires() || may_begin_retirement() || !log_.has_room()) return nullptr;
  PagePlan& plan = own_plan_;
  plan.begin_anew(request);
  set_positions(plan);
  // What is handed over once more is had without a look at the free runs, by who has the heap's lock.
  if (find_hand_over(request).record != nullptr &&
      log_.exact(plan.positions.front(), request.sectors) == PlacementLog::kNone)
    return nullptr;
  log_.fetch(plan.positions.front(), request.sectors);
  catch_up();
  if (!places_.has_room(1, most_places())) return nullptr;
  const std::optional<Choice> choice = choose_own_bytes(plan);
  if (!choice || !has_room_for(plan, *choice)) return nullptr;
  place_at(plan, *choice);
  let_out(plan);
  return &plan;
}

}  // namespace cistern
