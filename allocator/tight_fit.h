#pragma once

// Where in a stream's free runs a request touches the fewest pages that are wholly free.
//
// Whole free pages are what other requests are gathered from; a fragment at the edge of a page serves nothing else.
// Thread safety: a function of its arguments. Complexity: O(log n).

#include <cstdint>

#include "allocator/free_run.h"
#include "allocator/page_size.h"
#include "allocator/runs_by_size.h"

namespace cistern {

struct TightFit {
  Sectors address = 0;
  std::int64_t pages = 0;  // wholly free ones that it touches; 0 where a run is used up
  RunNumber run = kNoRun;  // that it is in; none: no run holds the request
  bool is_exact = false;   // a run is of just that size

  [[nodiscard]] explicit operator bool() const { return run != kNoRun; }
};

// So many runs are looked at: mostly one of them serves as well as any larger one, and there may be hundreds.
inline constexpr int kMostFits = 32;
// Where sizes do not come again: larger runs are kept whole then.
inline constexpr int kFewFits = 1;

// Of the stream's: a run of just that size, lowest address first; else, of the `most` smallest runs that hold the
// request, at an end of a run or at its first or last page edge, the fewest whole pages, then the fewest fragments
// left, the smallest run, the lowest address. Requires: most > 0.
[[nodiscard]] TightFit tight_fit(const RunsBySize& runs, StreamNumber stream, Sectors sectors, PageSize page,
                                 int most = kMostFits);

}  // namespace cistern
