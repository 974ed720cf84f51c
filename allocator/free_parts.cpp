#include "allocator/free_parts.h"

#include <algorithm>
#include <tuple>

namespace cistern {
namespace {

// Calls visit(begin, end, its runs' stream, sectors of its first run) for each stretch of free bytes: a run of the
// stream, or runs of any streams side by side, of which the stream is then -1 if there are several.
template <class Visit>
void for_each_stretch(const FreeRuns& runs, StreamNumber stream, bool of_all_streams, Visit&& visit) {
  FreeRun stretch;
  runs.for_each([&](const FreeRun& run) {
    if (run.stream != stream && !of_all_streams) return;
    if (of_all_streams && stretch.sectors != 0 && stretch.end() == run.address) {
      stretch.sectors += run.sectors;
      stretch.stream = -1;
      return;
    }
    if (stretch.sectors != 0) visit(stretch);
    stretch = run;
  });
  if (stretch.sectors != 0) visit(stretch);
}

EdgePart longer(const EdgePart& a, const EdgePart& b) { return b.sectors > a.sectors ? b : a; }

}  // namespace

std::vector<FreeHandle> free_handles(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                     Sectors kept_begin, Sectors kept_end, bool of_all_streams) {
  const PageSize page = table.page();
  std::vector<FreeHandle> found;
  // The stretch is one run, or has handles whose bytes are of several.
  const auto add = [&](const FreeRun& stretch, bool is_one_run) {
    const Sectors end = page.down(stretch.end());
    for (Sectors at = page.up(stretch.address); at < end;) {
      const PageTable::Handle handle = table.handle_at(at);
      const Sectors home = table.home_of(handle);
      const Sectors behind = home + table.sectors_of(handle);
      const bool is_kept = behind > kept_begin && at < kept_end;
      if (home == at && behind <= end && !is_kept && (is_one_run || !runs.is_one_run(at, table.sectors_of(handle))))
        found.push_back({handle, table.pages_of(handle), at, stretch.sectors, stretch.stream});
      at = behind;
    }
  };
  runs.for_each([&](const FreeRun& run) {
    if (run.stream == stream || of_all_streams) add(run, true);
  });
  if (of_all_streams)
    for_each_stretch(runs, stream, true, [&](const FreeRun& stretch) {
      if (stretch.stream == -1) add(stretch, false);
    });
  std::sort(found.begin(), found.end(), [stream](const FreeHandle& a, const FreeHandle& b) {
    return std::tuple(a.stream != stream, -a.pages, a.run, a.address) <
           std::tuple(b.stream != stream, -b.pages, b.run, b.address);
  });
  return found;
}

std::vector<FreeHandle> choose_donors(const std::vector<FreeHandle>& handles, std::int64_t pages, bool may_exceed) {
  std::vector<FreeHandle> chosen;
  std::vector<FreeHandle> passed_over;
  std::int64_t missing = pages;
  for (const FreeHandle& handle : handles) {
    if (missing <= 0) break;
    if (handle.pages > missing) {
      passed_over.push_back(handle);
      continue;
    }
    chosen.push_back(handle);
    missing -= handle.pages;
  }
  if (!may_exceed) return chosen;
  for (const FreeHandle& handle : passed_over) {
    if (missing <= 0) break;
    chosen.push_back(handle);
    missing -= handle.pages;
  }
  return chosen;
}

FreeFragments free_fragments(const FreeRuns& runs, const PageTable& table, StreamNumber stream, bool of_all_streams) {
  const PageSize page = table.page();
  FreeFragments found;
  runs.for_each([&](const FreeRun& run) {
    if (run.stream != stream && !of_all_streams) return;
    const Sectors edge = page.up(run.address);
    if (edge != run.address && edge <= run.end()) {
      const PageTable::Slot slot = table.slot_at(run.address);
      if (slot.page + 1 == table.pages_of(slot.handle))
        found.endings.push_back({edge - run.address, run.address, slot});
    }
    const Sectors last = page.down(run.end());
    if (last != run.end() && last >= run.address) {
      const PageTable::Slot slot = table.slot_at(last);
      if (slot.page == 0) found.beginnings.push_back({run.end() - last, last, slot});
    }
  });
  std::sort(found.endings.begin(), found.endings.end());
  std::sort(found.beginnings.begin(), found.beginnings.end());
  return found;
}

std::optional<LastWindow> last_window(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                      bool of_all_streams, Sectors sectors, std::int64_t most_created) {
  LastWindow window;
  window.handles = free_handles(runs, table, stream, 0, 0, of_all_streams);
  Sectors missing = sectors;
  for (const FreeHandle& handle : window.handles) missing -= table.page().sectors(handle.pages);
  window.created = std::clamp<std::int64_t>(table.page().covering(missing), 0, most_created);
  missing -= table.page().sectors(window.created);
  if (missing <= 0) return window;
  // The longest free end and the longest free beginning, be they of one handle: it is mapped twice then.
  EdgePart ending;
  EdgePart beginning;
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
  std::optional<Sectors> found;
  for_each_stretch(runs, 0, true, [&](const FreeRun& stretch) {
    if (!found && stretch.sectors >= sectors) found = stretch.address;
  });
  return found;
}

}  // namespace cistern
