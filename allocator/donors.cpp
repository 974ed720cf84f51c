#include "allocator/donors.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace cistern {

DonorSearch::DonorSearch(const FreeParts& parts, const FreeRuns& runs, const PageTable& table,
                         const DonorRequest& request)
    : parts_(parts), runs_(runs), table_(table), request_(request) {}

bool DonorSearch::is_kept(PageTable::Handle handle, Sectors begin, Sectors end) const {
  return (end > request_.kept_begin && begin < request_.kept_end) || handle == request_.kept[0] ||
         handle == request_.kept[1];
}

// Once the stream's own do not suffice.
void DonorSearch::list_others() {
  if (has_listed_ || !request_.of_all_streams) return;
  has_listed_ = true;
  of_others_ = parts_.classes_beside(request_.stream);
  FreeRun stretch;
  for (const Sectors home : parts_.shared()) {
    if (home < stretch.address || home >= stretch.end()) stretch = runs_.stretch_around(home);
    const int size_class = HandleCounts::class_of(table_.pages_of(table_.handle_at(home)));
    shared_.push_back({size_class, {stretch.sectors, home, -1, 1}});
    of_others_ |= FreeParts::Classes{1} << size_class;
  }
  std::sort(shared_.begin(), shared_.end(), [](const Shared& a, const Shared& b) {
    return std::tie(a.size_class, a.place.sectors, a.place.address) <
           std::tie(b.size_class, b.place.sectors, b.place.address);
  });
}

// Calls visit(group, class), the largest of the stream first, then the largest of others, as long as it returns true.
template <class Visit>
void DonorSearch::for_each_class(Visit&& visit) {
  for (const Group group : {own, others}) {
    if (group == others) list_others();
    FreeParts::Classes classes = group == own ? parts_.classes_of(request_.stream) : of_others_;
    while (classes != 0) {
      const int size_class = static_cast<int>(std::bit_width(classes)) - 1;
      if (!visit(group, size_class)) return;
      classes &= ~(FreeParts::Classes{1} << size_class);
    }
  }
}

// Calls visit(FreeHandle) for those of the size that lie in the run, by address, as long as it returns true. Returns
// whether it always did.
template <class Visit>
bool DonorSearch::for_each_in_run(const Place& run, int size_class, Visit&& visit) const {
  const PageSize page = table_.page();
  const Sectors run_end = run.address + run.sectors;
  Sectors end = page.down(run_end);
  if (request_.kept_end >= run_end) end = std::min(end, std::max(request_.kept_begin, run.address));
  std::int32_t left = run.handles;
  for (Sectors at = page.up(run.address); left > 0 && at < end;) {
    const PageTable::Handle handle = table_.handle_at(at);
    const Sectors home = table_.home_of(handle);
    const std::int32_t pages = table_.pages_of(handle);
    const Sectors behind = home + page.sectors(pages);
    if (home == at && behind <= run_end && HandleCounts::class_of(pages) == size_class) {
      --left;
      if (!is_kept(handle, at, behind) && !visit(FreeHandle{handle, pages, at})) return false;
    }
    at = behind;
  }
  return true;
}

// Calls visit(Place) for the stream's, as long as it returns true.
template <class Visit>
void DonorSearch::for_each_own_place(int size_class, Visit&& visit) const {
  for (const auto& [run, handles] : parts_.runs_of(request_.stream, size_class))
    if (!visit(Place{run.sectors, run.address, request_.stream, handles})) return;
}

// The same of all others, whose runs are in order each.
template <class Visit>
void DonorSearch::for_each_other_place(int size_class, Visit&& visit) const {
  struct Cursor {
    Place place;
    FreeParts::Runs::const_iterator next, end;
  };
  std::vector<Cursor> cursors;
  const auto is_later = [](const Cursor& a, const Cursor& b) { return is_behind(a.place, b.place); };
  const auto go_on = [&](Cursor& cursor) {
    if (cursor.next == cursor.end) return false;
    const auto& [run, handles] = *cursor.next++;
    cursor.place = {run.sectors, run.address, run.stream, handles};
    return true;
  };
  parts_.for_each_stream_with(size_class, [&](StreamNumber stream, const FreeParts::RunRange& runs) {
    if (stream == request_.stream) return;
    cursors.push_back({{}, runs.begin(), runs.end()});
    go_on(cursors.back());
  });
  std::make_heap(cursors.begin(), cursors.end(), is_later);
  auto part =
      std::find_if(shared_.begin(), shared_.end(), [&](const Shared& one) { return one.size_class == size_class; });
  const auto has_part = [&] { return part != shared_.end() && part->size_class == size_class; };
  while (!cursors.empty() || has_part()) {
    if (cursors.empty() || (has_part() && is_behind(cursors.front().place, part->place))) {
      if (!visit(part++->place)) return;
      continue;
    }
    if (!visit(cursors.front().place)) return;
    std::pop_heap(cursors.begin(), cursors.end(), is_later);
    if (go_on(cursors.back()))
      std::push_heap(cursors.begin(), cursors.end(), is_later);
    else
      cursors.pop_back();
  }
}

// Calls visit(FreeHandle) for those of the size, as long as it returns true.
template <class Visit>
void DonorSearch::for_each_handle(Group group, int size_class, Visit&& visit) const {
  const auto visit_place = [&](const Place& place) {
    if (place.stream >= 0) return for_each_in_run(place, size_class, visit);
    const PageTable::Handle handle = table_.handle_at(place.address);
    if (is_kept(handle, place.address, place.address + table_.sectors_of(handle))) return true;
    return visit(FreeHandle{handle, table_.pages_of(handle), place.address});
  };
  if (group == own)
    for_each_own_place(size_class, visit_place);
  else
    for_each_other_place(size_class, visit_place);
}

std::vector<FreeHandle> DonorSearch::choose(std::int64_t pages) {
  std::vector<FreeHandle> found;
  if (pages <= 0) return found;
  for_each_class([&](Group group, int size_class) {
    const std::int64_t of_one = std::int64_t{1} << size_class;
    if (of_one > pages) return true;
    for_each_handle(group, size_class, [&](const FreeHandle& handle) {
      if (of_one > pages) return false;
      found.push_back(handle);
      pages -= of_one;
      ++chosen_[group][static_cast<std::size_t>(size_class)];
      return true;
    });
    return pages > 0;
  });
  return found;
}

// Those that were chosen are the first of their size.
std::optional<FreeHandle> DonorSearch::first_left() {
  std::optional<FreeHandle> found;
  for_each_class([&](Group group, int size_class) {
    std::int32_t chosen = chosen_[group][static_cast<std::size_t>(size_class)];
    for_each_handle(group, size_class, [&](const FreeHandle& handle) {
      if (chosen-- > 0) return true;
      found = handle;
      return false;
    });
    return !found;
  });
  return found;
}

}  // namespace cistern
