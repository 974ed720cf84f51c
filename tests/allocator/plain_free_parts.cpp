#include "tests/allocator/plain_free_parts.h"

#include <algorithm>
#include <tuple>

namespace cistern {
namespace {

struct PlainHandle {
  PageTable::Handle handle;
  std::int32_t pages;
  Sectors run;  // sectors of what is free around it
  Sectors address;
  StreamNumber stream;  // -1: several
};

// Calls visit(FreeRun) for each stretch of runs side by side, of which the stream is -1 if there are several.
template <class Visit>
void for_each_plain_stretch(const FreeRuns& runs, Visit&& visit) {
  FreeRun stretch;
  runs.for_each([&](const FreeRun& run) {
    if (stretch.sectors != 0 && stretch.end() == run.address) {
      stretch.sectors += run.sectors;
      stretch.stream = -1;
      return;
    }
    if (stretch.sectors != 0) visit(stretch);
    stretch = run;
  });
  if (stretch.sectors != 0) visit(stretch);
}

bool is_better_plainly(const WindowPlan& a, const WindowPlan& b) {
  return std::tie(a.pages, a.cut, a.left) < std::tie(b.pages, b.cut, b.left);
}

// One fragment that holds the rest: a part of it is used, or all of it and less of the whole pages.
std::vector<WindowPlan> plain_ways_of_one(std::int64_t pages, Sectors rest, Sectors sectors, const Fragment& part,
                                          bool is_ending, PageSize page) {
  std::vector<WindowPlan> ways;
  const Sectors left = part.sectors - rest;
  const bool is_negligible = left <= page.sectors() / 64;
  if (rest > 0)
    ways.push_back({pages, is_ending ? rest : 0, is_ending ? 0 : rest, part, part,
                    is_negligible ? WindowCut::none : WindowCut::one_part, left});
  if (pages > 0 && part.sectors <= sectors)
    ways.push_back({pages, is_ending ? part.sectors : 0, is_ending ? 0 : part.sectors, part, part,
                    WindowCut::whole_page, left, is_ending ? 0 : left});
  return ways;
}

}  // namespace

std::vector<PageTable::Handle> plain_free_handles(const FreeRuns& runs, const PageTable& table,
                                                  const DonorRequest& request) {
  const PageSize page = table.page();
  std::vector<PlainHandle> found;
  // The stretch is one run, or has handles whose bytes are of several.
  const auto add = [&](const FreeRun& stretch, bool is_one_run) {
    const Sectors end = page.down(stretch.end());
    for (Sectors at = page.up(stretch.address); at < end;) {
      const PageTable::Handle handle = table.handle_at(at);
      const Sectors home = table.home_of(handle);
      const Sectors behind = home + table.sectors_of(handle);
      const bool is_kept = (behind > request.kept_begin && at < request.kept_end) || handle == request.kept[0] ||
                           handle == request.kept[1];
      if (home == at && behind <= end && !is_kept && (is_one_run || !runs.is_one_run(at, table.sectors_of(handle))))
        found.push_back({handle, table.pages_of(handle), stretch.sectors, at, stretch.stream});
      at = behind;
    }
  };
  runs.for_each([&](const FreeRun& run) {
    if (run.stream == request.stream || request.of_all_streams) add(run, true);
  });
  if (request.of_all_streams)
    for_each_plain_stretch(runs, [&](const FreeRun& stretch) {
      if (stretch.stream == -1) add(stretch, false);
    });
  std::sort(found.begin(), found.end(), [&](const PlainHandle& a, const PlainHandle& b) {
    return std::tuple(a.stream != request.stream, -a.pages, a.run, a.address) <
           std::tuple(b.stream != request.stream, -b.pages, b.run, b.address);
  });
  std::vector<PageTable::Handle> handles;
  for (const PlainHandle& one : found) handles.push_back(one.handle);
  return handles;
}

std::vector<PageTable::Handle> plain_donors(const std::vector<PageTable::Handle>& handles, const PageTable& table,
                                            std::int64_t pages, bool may_exceed) {
  std::vector<PageTable::Handle> chosen;
  std::vector<PageTable::Handle> passed_over;
  for (const PageTable::Handle handle : handles) {
    if (pages <= 0) break;
    if (table.pages_of(handle) > pages) {
      passed_over.push_back(handle);
      continue;
    }
    chosen.push_back(handle);
    pages -= table.pages_of(handle);
  }
  if (may_exceed && pages > 0 && !passed_over.empty()) chosen.push_back(passed_over.front());
  return chosen;
}

std::vector<Fragment> all_of(FragmentLists lists) {
  std::vector<Fragment> found;
  for (const Fragments* list : lists)
    for (auto size = list->size_from(1); size; size = list->size_from(*size + 1))
      for (const Fragment* part = list->first_of(*size, 0); part != nullptr;
           part = list->first_of(*size, part->address + 1))
        found.push_back(*part);
  std::sort(found.begin(), found.end());
  return found;
}

PlainFragments plain_fragments(const FreeRuns& runs, const PageTable& table, StreamNumber stream, bool of_all_streams) {
  const PageSize page = table.page();
  PlainFragments found;
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

std::optional<WindowPlan> plain_window(const std::vector<Fragment>& endings, const std::vector<Fragment>& beginnings,
                                       Sectors sectors, PageSize page) {
  std::optional<WindowPlan> best;
  const auto offer = [&](const WindowPlan& way) {
    if (!best || is_better_plainly(way, *best)) best = way;
  };
  const std::int64_t whole = page.whole(sectors);
  for (std::int64_t pages = std::max<std::int64_t>(0, whole - 1); pages <= whole; ++pages) {
    const Sectors rest = sectors - page.sectors(pages);
    for (const Fragment& ending : endings)
      for (const Fragment& beginning : beginnings) {
        const Sectors missing = rest - ending.sectors;
        const Sectors left = beginning.sectors - missing;
        if (missing <= 0 || left < 0 || ending.slot == beginning.slot) continue;
        offer({pages, ending.sectors, missing, ending, beginning,
               left <= page.sectors() / 64 ? WindowCut::none : WindowCut::two_parts, left});
      }
    for (const bool is_ending : {true, false}) {
      const std::vector<Fragment>& parts = is_ending ? endings : beginnings;
      const auto part = std::find_if(parts.begin(), parts.end(), [&](const Fragment& p) { return p.sectors >= rest; });
      if (part == parts.end()) continue;
      for (const WindowPlan& way : plain_ways_of_one(pages, rest, sectors, *part, is_ending, page)) offer(way);
    }
  }
  return best;
}

}  // namespace cistern
