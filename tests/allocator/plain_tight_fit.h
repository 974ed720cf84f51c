#pragma once

// The tightest fit by the words of tight_fit.h, of each position in turn: what the search is compared with.

#include <optional>
#include <vector>

#include "allocator/free_run.h"
#include "allocator/tight_fit.h"

namespace cistern {

// Pages wholly inside the run of which a block at `begin` has a sector, counted one by one.
[[nodiscard]] std::int64_t plain_touched_pages(const FreeRun& run, Sectors begin, Sectors sectors, PageSize page);

// Of one stream's runs, in any order.
[[nodiscard]] std::optional<TightFit> plain_tight_fit(std::vector<FreeRun> runs, Sectors sectors, PageSize page,
                                                      int most);

}  // namespace cistern
