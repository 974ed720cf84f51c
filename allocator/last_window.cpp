#include "allocator/last_window.h"

#include <algorithm>
#include <limits>

namespace cistern {
namespace {

// Calls visit(FreeRun) for each stretch of free bytes: a run of the stream, or runs of any streams side by side.
template <class Visit>
void for_each_stretch(const FreeRuns& runs, StreamNumber stream, bool of_all_streams, Visit&& visit) {
  FreeRun stretch;
  runs.for_each([&](const FreeRun& run) {
    if (run.stream != stream && !of_all_streams) return;
    if (of_all_streams && stretch.sectors != 0 && stretch.end() == run.address) {
      stretch.sectors += run.sectors;
      return;
    }
    if (stretch.sectors != 0) visit(stretch);
    stretch = run;
  });
  if (stretch.sectors != 0) visit(stretch);
}

LastWindow::Part longer(const LastWindow::Part& a, const LastWindow::Part& b) { return b.sectors > a.sectors ? b : a; }

}  // namespace

std::optional<LastWindow> last_window(const FreeParts& parts, const FreeRuns& runs, const PageTable& table,
                                      StreamNumber stream, bool of_all_streams, Sectors sectors,
                                      std::int64_t most_created) {
  LastWindow window;
  DonorSearch donors(parts, runs, table, {.stream = stream, .of_all_streams = of_all_streams});
  window.handles = donors.choose(std::numeric_limits<std::int64_t>::max());
  Sectors missing = sectors;
  for (const FreeHandle& handle : window.handles) missing -= table.page().sectors(handle.pages);
  window.created = std::clamp<std::int64_t>(table.page().covering(missing), 0, most_created);
  missing -= table.page().sectors(window.created);
  if (missing <= 0) return window;
  // The longest free end and the longest free beginning, be they of one handle: it is mapped twice then.
  LastWindow::Part ending;
  LastWindow::Part beginning;
  for_each_stretch(runs, stream, of_all_streams, [&](const FreeRun& stretch) {
    const PageTable::Handle first = table.handle_at(stretch.address);
    const PageTable::Handle last = table.handle_at(stretch.end() - 1);
    const Sectors first_end = table.home_of(first) + table.sectors_of(first);
    const Sectors last_begin = table.home_of(last);
    if (table.home_of(first) < stretch.address && first_end <= stretch.end())
      ending = longer(ending, {first_end - stretch.address, stretch.address, first});
    if (last_begin + table.sectors_of(last) > stretch.end() && last_begin >= stretch.address)
      beginning = longer(beginning, {stretch.end() - last_begin, last_begin, last});
  });
  if (ending.sectors + beginning.sectors < missing) return std::nullopt;
  const Sectors head = std::min(ending.sectors, missing);
  if (head > 0) window.ending = {head, ending.address + ending.sectors - head, ending.handle};
  if (missing > head) window.beginning = {missing - head, beginning.address, beginning.handle};
  return window;
}

std::optional<Sectors> free_stretch(const FreeRuns& runs, Sectors sectors) {
  if (runs.sectors() < sectors) return std::nullopt;
  std::optional<Sectors> found;
  for_each_stretch(runs, 0, true, [&](const FreeRun& stretch) {
    if (!found && stretch.sectors >= sectors) found = stretch.address;
  });
  return found;
}

}  // namespace cistern
