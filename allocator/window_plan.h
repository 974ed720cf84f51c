#pragma once

// How a request can be served by a window of [free end of a page][whole pages][free beginning of a page], so that
// fragments are used before pages are.
//
// Thread safety: a function of its arguments. Complexity: O(sizes of ends that there are, each once, and lists), at
// most the sectors of a page, however many fragments there are; less where some leave nothing.

#include <cstdint>
#include <optional>

#include "allocator/fragments.h"
#include "allocator/page_size.h"

namespace cistern {

// How cleanly it leaves what it cuts, best first.
enum class WindowCut : std::uint8_t {
  none,        // but for a 64th of a page
  whole_page,  // a fragment is used up, and the rest of a whole page is a new one
  one_part,    // the one fragment is not used up: what is left is in the middle of a page
  two_parts,   // nor is the second of two
};

struct WindowPlan {
  std::int64_t pages = 0;  // whole ones
  Sectors head = 0;        // of `ending`: its last sectors; 0: the window begins with a whole page
  Sectors tail = 0;        // of `beginning`: its first sectors; 0: it ends with a whole page
  Fragment ending;
  Fragment beginning;
  WindowCut cut = WindowCut::none;
  Sectors left = 0;  // behind the cut, in its page
  // Sectors of the first whole page that stay before the block: a cut in it where the tail is used up.
  Sectors skipped = 0;
};

// The window with the fewest whole pages, then the cleanest cut, then the least left, then the shortest end, then the
// lowest addresses. Requires: `endings` reach the end of their page and `beginnings` begin it. Nothing: no fragment
// saves a page.
[[nodiscard]] std::optional<WindowPlan> plan_window(FragmentLists endings, FragmentLists beginnings, Sectors sectors,
                                                    PageSize page);

}  // namespace cistern
