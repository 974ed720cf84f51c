#pragma once

// What free runs offer to a request that no run holds: whole handles, and fragments of pages.
//
// Thread safety: functions of their arguments. Complexity: O(free runs and handles in them), and sorting.

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/page_table.h"
#include "allocator/window_plan.h"

namespace cistern {

// A handle that is wholly free.
struct FreeHandle {
  PageTable::Handle handle = -1;
  std::int32_t pages = 0;
  Sectors address = 0;  // its home
  Sectors run = 0;      // sectors of the run that it is in
  StreamNumber stream = 0;
};

// Those with no byte in [kept_begin, kept_end): the stream's own first, then larger ones, then those in smaller runs.
// Those of the stream; or of all, those too that are free in parts of several streams.
[[nodiscard]] std::vector<FreeHandle> free_handles(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                                   Sectors kept_begin, Sectors kept_end, bool of_all_streams);

// The first of these that together have at most `pages`. With `may_exceed`, where they have fewer, the first of the
// others until they have enough.
[[nodiscard]] std::vector<FreeHandle> choose_donors(const std::vector<FreeHandle>& handles, std::int64_t pages,
                                                    bool may_exceed);

// Free bytes at one end of a handle that is free in part, of any length.
struct EdgePart {
  Sectors sectors = 0;
  Sectors address = 0;  // at home
  PageTable::Handle handle = -1;
};

struct FreeFragments {
  std::vector<Fragment> endings;     // reach the end of their handle
  std::vector<Fragment> beginnings;  // begin it
};

// Fragments at the edges of handles, for a handle is mapped whole and the window goes on beside it; ascending. Those
// of the stream, or of all.
[[nodiscard]] FreeFragments free_fragments(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                           bool of_all_streams);

// What is left where nothing else serves: all whole handles, and free ends of others.
struct LastWindow {
  std::vector<FreeHandle> handles;
  std::int64_t created = 0;  // pages
  EdgePart ending;           // its last sectors; none: the window begins with a whole handle
  EdgePart beginning;        // its first
};

// A window of so many sectors from all wholly free handles, `most_created` new pages and free ends of handles. Nothing:
// no window does. Of the stream's free bytes, or of all.
[[nodiscard]] std::optional<LastWindow> last_window(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                                    bool of_all_streams, Sectors sectors, std::int64_t most_created);

// Where so many sectors are free side by side, of whichever streams: the lowest address.
[[nodiscard]] std::optional<Sectors> free_stretch(const FreeRuns& runs, Sectors sectors);

}  // namespace cistern
