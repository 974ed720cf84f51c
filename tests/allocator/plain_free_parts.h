#pragma once

// What free runs offer, by looking at all of them each time: what the index is compared with.

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/donors.h"
#include "allocator/free_runs.h"
#include "allocator/page_table.h"
#include "allocator/window_plan.h"

namespace cistern {

// In the order in which they are given up.
[[nodiscard]] std::vector<PageTable::Handle> plain_free_handles(const FreeRuns& runs, const PageTable& table,
                                                                const DonorRequest& request);

// The first of these that together have at most `pages`. With `may_exceed`, where they have fewer, the first of the
// others, too.
[[nodiscard]] std::vector<PageTable::Handle> plain_donors(const std::vector<PageTable::Handle>& handles,
                                                          const PageTable& table, std::int64_t pages, bool may_exceed);

// Each of them, as it is found by its size.
[[nodiscard]] std::vector<Fragment> all_of(FragmentLists lists);

struct PlainFragments {
  std::vector<Fragment> endings;  // ascending
  std::vector<Fragment> beginnings;
};
[[nodiscard]] PlainFragments plain_fragments(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                             bool of_all_streams);

// Requires: both are ascending.
[[nodiscard]] std::optional<WindowPlan> plain_window(const std::vector<Fragment>& endings,
                                                     const std::vector<Fragment>& beginnings, Sectors sectors,
                                                     PageSize page);

}  // namespace cistern
