#pragma once

// A placement that is asked as a heap asks it, first for what it knows, and programs for it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/allocator/placement_case.h"

namespace cistern {

class PageShortcutCase : public PlacementCase {
 protected:
  [[nodiscard]] std::optional<PagedBlock> known(Sectors sectors, StreamNumber stream = 0) {
    return placement_.take_known({sectors, stream});
  }
  // Of the place of a larger request.
  std::optional<PagedBlock> take_part(const PageRequest& request) {
    const PlacementLog::Number larger = placement_.find_larger(request);
    if (larger == PlacementLog::kNone) return std::nullopt;
    ++parts_;
    return placement_.block_at(placement_.take_part(larger, request, true));
  }
  PagedBlock allocate(Sectors sectors, StreamNumber stream = 0) {
    if (const auto block = known(sectors, stream)) return *block;
    auto handed_over = placement_.plan_known({sectors, stream});
    hand_overs_ += handed_over ? 1 : 0;
    PagePlan plan = handed_over ? *std::move(handed_over) : placement_.plan({sectors, stream});
    EXPECT_EQ(plan.kind, PlanKind::placed);
    EXPECT_TRUE(plan.gather.empty() || carry_out(plan.gather, driver_));
    return placement_.commit(plan);
  }
  // One page, which two streams have in turn.
  void hand_to_and_fro(int turns) {
    for (int turn = 0; turn < turns; ++turn)
      for (const StreamNumber stream : {0, 1}) release(allocate(60, stream));
  }
  // A block of a page of which others have the rest, with no other page to be had.
  PagedBlock between_others(Sectors sectors) {
    static_cast<void>(allocate(14));
    const PagedBlock block = allocate(sectors);
    static_cast<void>(allocate(128 - 14 - sectors));
    placement_.set_page_limit(1);
    return block;
  }

  int hand_overs_ = 0;  // that were known
  int parts_ = 0;       // of places of larger requests
};

}  // namespace cistern
