#pragma once

// What serves a request for which no whole pages are left, found by looking at all that is free.
//
// Thread safety: functions of their arguments. Complexity: O(free runs and handles in them).

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/donors.h"
#include "allocator/free_parts.h"
#include "allocator/free_runs.h"
#include "allocator/page_table.h"

namespace cistern {

// All whole handles, and free ends of others.
struct LastWindow {
  // Free bytes at one end of a handle that is free in part, of any length.
  struct Part {
    Sectors sectors = 0;
    Sectors address = 0;  // at home
    PageTable::Handle handle = -1;
  };
  std::vector<FreeHandle> handles;
  std::int64_t created = 0;  // pages
  Part ending;               // its last sectors; none: the window begins with a whole handle
  Part beginning;            // its first
};

// A window of so many sectors from all wholly free handles, `most_created` new pages and free ends of handles. Nothing:
// no window does. Of the stream's free bytes, or of all.
[[nodiscard]] std::optional<LastWindow> last_window(const FreeParts& parts, const FreeRuns& runs,
                                                    const PageTable& table, StreamNumber stream, bool of_all_streams,
                                                    Sectors sectors, std::int64_t most_created);

// Where so many sectors are free side by side, of whichever streams: the lowest address.
[[nodiscard]] std::optional<Sectors> free_stretch(const FreeRuns& runs, Sectors sectors);

}  // namespace cistern
