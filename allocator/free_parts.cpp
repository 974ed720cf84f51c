#include "allocator/free_parts.h"

#include <algorithm>
#include <tuple>

namespace cistern {

std::vector<FreeHandle> free_handles(const FreeRuns& runs, const PageTable& table, StreamNumber stream,
                                     Sectors kept_begin, Sectors kept_end, bool of_all_streams) {
  const PageSize page = table.page();
  std::vector<FreeHandle> found;
  runs.for_each([&](const FreeRun& run) {
    if (run.stream != stream && !of_all_streams) return;
    const Sectors end = page.down(run.end());
    for (Sectors at = page.up(run.address); at < end;) {
      const PageTable::Handle handle = table.handle_at(at);
      const Sectors home = table.home_of(handle);
      const Sectors behind = home + table.sectors_of(handle);
      const bool is_kept = at >= kept_begin && at < kept_end;
      if (home == at && behind <= end && !is_kept)
        found.push_back({handle, table.pages_of(handle), at, run.sectors, run.stream});
      at = behind;
    }
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

}  // namespace cistern
