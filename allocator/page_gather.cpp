// Placement where no free run serves: what is gathered, and what is created.

#include <algorithm>

#include "allocator/donors.h"
#include "allocator/last_window.h"
#include "allocator/page_placement.h"
#include "allocator/window_plan.h"

namespace cistern {
namespace {

// A block whose last page would be filled to 1 - 1/64 begins at a page edge rather than in a tail.
constexpr Sectors kFilled = 64;
// Memory may exceed what was ever live by this share before whole free handles are gathered, where no room was given.
constexpr Sectors kShareOverPeak = 500;
// A handle is at most this share of the request that it is made for: what is left of it serves others badly.
constexpr Sectors kLeastHandlesOfRequest = 96;

}  // namespace

bool PagePlacement::is_long(PageTable::Arena arena) const { return table_.slots(arena) >= arena_pages_; }

// Where the gather's steps go, which were planned from 0 on: in a hole, or behind the end of the stream's arena, and of
// another where this one has grown long. What it came to is in the plan, for `abandon`, when it throws half way.
void PagePlacement::set_addresses(PagePlan& plan, bool goes_on_at_end) {
  constexpr std::size_t kRunsBeside = 4;  // what the block leaves before and behind it, and its own
  free_.keep_room(kRunsBeside);
  plan.room += kRunsBeside;
  const StreamNumber stream = plan.request.stream;
  Gather& gather = plan.gather;
  std::optional<Sectors> address;
  if (!goes_on_at_end) {
    address = table_.reserve_hole(arena_of(stream), gather.pages);
    if (!address && is_long(arena_of(stream))) {
      growing(stream) = -1;
      address = table_.reserve_hole(arena_of(stream), gather.pages);
    }
  }
  if (!address) {
    const PageTable::Arena arena = arena_of(stream);
    free_.provide_addresses(table_.end_of(arena) + table_.page().sectors(gather.pages));
    address = table_.reserve(arena, gather.pages);
  }
  plan.is_under_way = true;
  ++under_way_;
  gather.address = *address;
  for (Gather::Step& step : gather.steps) step.address += *address;
}

// Free bytes at the end of the arena with which the block can begin.
Sectors PagePlacement::tail_of(const PageRequest& request) {
  if (is_long(arena_of(request.stream))) return 0;
  const auto run = free_.ending_at(table_.end_of(arena_of(request.stream)), request.stream);
  if (!run) return 0;
  const PageSize page = table_.page();
  const bool fills_pages =
      request.sectors > page.sectors() / 2 && (page.up(request.sectors) - request.sectors) * kFilled <= request.sectors;
  return fills_pages ? page.down(run->sectors) : run->sectors;
}

std::int64_t PagePlacement::pages_before_gathering(const PageRequest& request) const {
  const Sectors peak = std::max(peak_live_, live_ + request.sectors);
  return std::min(std::max(table_.page().whole(peak + peak / kShareOverPeak), room_to_settle_.pages()), page_limit_);
}

// At most a third is free. Where more is, and a request needs new memory all the same, pages that it does not need will
// not serve others either: many streams with little each have a handle of their own.
bool PagePlacement::is_dense() const { return 3 * free_.sectors() <= table_.page().sectors(table_.pages()); }

// Small requests create some pages at once: a set-access for each would cost more than they are. In proportion to what
// was live: of memory that nobody can have, as that of streams which were destroyed without a word, there may be more
// than of any other.
std::int64_t PagePlacement::with_growth(const PageRequest& request, std::int64_t pages) const {
  const std::int64_t all = table_.pages();
  if (!request.may_create_ahead || request.sectors >= table_.page().sectors(8)) return pages;
  const std::int64_t used = std::min(all, table_.page().whole(table_.page().up(peak_live_)));
  const std::int64_t share = std::max(used / 512, std::min<std::int64_t>(4, used / 64));
  return std::max(pages, std::min({share, page_limit_ - all, std::int64_t{64}}));
}

std::int32_t PagePlacement::pages_of_new(const PageRequest& request, std::int64_t missing) const {
  std::int32_t pages = 1;
  while (pages * 2 <= missing && table_.page().sectors(pages * 2) <= request.sectors / kLeastHandlesOfRequest)
    pages *= 2;
  return pages;
}

// A step behind the others, of a new handle, which `add_mapped` replaces.
void PagePlacement::add_step(PagePlan& plan, std::int32_t pages, bool moves_home) {
  plan.gather.steps.push_back({-1, pages, table_.page().sectors(plan.gather.pages), false, moves_home});
  plan.gather.pages += pages;
}

void PagePlacement::add_mapped(PagePlan& plan, PageTable::Handle handle, std::int32_t pages, bool moves_home) {
  add_step(plan, pages, moves_home);
  plan.gather.steps.back().handle = handle;
}

void PagePlacement::add_donors(PagePlan& plan, const std::vector<FreeHandle>& donors) {
  for (const FreeHandle& donor : donors) {
    take(plan, donor.address, table_.sectors_of(donor.handle));
    add_mapped(plan, donor.handle, donor.pages, true);
  }
}

// Keeps room for what the moves of its home need. Throws std::bad_alloc, unchanged.
PageTable::Handle PagePlacement::add_handle(std::int32_t pages) {
  free_.keep_room(kRunsOfMove);
  try {
    const PageTable::Handle handle = table_.add_handle(pages);
    const auto count = static_cast<std::size_t>(handle) + 1;
    try {
      ages_.provide(count);
      parts_.provide(count);
      if (decided_.size() < count) decided_.resize(count);
      if (left_at_.size() < count) left_at_.resize(count);
    } catch (...) {
      table_.remove_handle(handle);
      throw;
    }
    ages_.used(handle);
    return handle;
  } catch (...) {
    free_.drop_room(kRunsOfMove);
    throw;
  }
}

// Addresses for what the log may come to know, so that hits ask for none. Without them they do when they need some.
void PagePlacement::expect_places() noexcept {
  try {
    log_.expect(most_logged());
    places_.expect(most_logged());
  } catch (const std::bad_alloc&) {
  }
}

void PagePlacement::remove_handle(PageTable::Handle handle) noexcept {
  table_.remove_handle(handle);
  free_.drop_room(kRunsOfMove);
}

// With `may_round_up` handles are as large as thrift asks for, and may be more than `pages` in all.
void PagePlacement::add_new(PagePlan& plan, std::int64_t pages, bool may_round_up) {
  DriverSpending spending = spending_;
  spending.mapped(static_cast<std::int64_t>(plan.gather.steps.size()));
  may_round_up = may_round_up && is_dense();
  while (pages > 0) {
    std::int32_t count = pages_of_new(plan.request, pages);
    if (may_round_up) {
      const std::int32_t least = spending.least_handle(table_.pages());
      if (count < least && least <= page_limit_ - table_.pages()) count = least;
    }
    add_step(plan, count, true);
    plan.gather.steps.back().handle = add_handle(count);
    plan.gather.steps.back().is_new = true;
    spending.created(1);
    spending.mapped(1);
    pages -= count;
  }
}

DonorSearch PagePlacement::donors_for(const PageRequest& request, Sectors kept_begin, Sectors kept_end) const {
  return {parts_, free_, table_, {request.stream, request.may_take_others, kept_begin, kept_end}};
}

// Without those of its fragments.
DonorSearch PagePlacement::donors_beside(const PageRequest& request, const WindowPlan& window) const {
  DonorRequest wanted{request.stream, request.may_take_others};
  if (window.head > 0) wanted.kept[0] = window.ending.slot.handle;
  if (window.tail > 0) wanted.kept[1] = window.beginning.slot.handle;
  return {parts_, free_, table_, wanted};
}

void PagePlacement::plan_miss(PagePlan& plan) {
  const PageRequest& request = plan.request;
  const PageSize page = table_.page();
  const Sectors end = table_.end_of(arena_of(request.stream));
  const Sectors tail = tail_of(request);
  const std::int64_t needed = page.covering(request.sectors - tail);

  std::vector<FreeHandle> donors;
  std::int64_t created = needed;
  if (table_.pages() + needed > pages_before_gathering(request)) {
    free_.find_parts();
    DonorSearch search = donors_for(request, end - tail, end);
    donors = search.choose(needed);
    for (const FreeHandle& donor : donors) created -= donor.pages;
    if (created > 0)
      if (const auto larger = search.first_left()) {
        donors.push_back(*larger);
        created -= larger->pages;
      }
    plan.exceeds_peak = created > 0;
    if (created > 0) {
      const bool is_refused = created > page_limit_ - table_.pages();
      if ((is_refused || request.sectors > page.sectors() / 2) &&
          plan_window_of_parts(plan, is_refused && request.may_take_others)) {
        plan.keeps_length = true;
        return;
      }
      if (is_refused) return plan_last_resort(plan);
    }
  }
  plan.kind = PlanKind::placed;
  plan.keeps_exact = true;
  plan.keeps_length = true;
  if (tail > 0) take(plan, end - tail, tail);
  add_donors(plan, donors);
  if (created > 0) add_new(plan, with_growth(request, created), request.may_create_ahead);
  set_addresses(plan, tail > 0);
  plan.address = plan.gather.address - tail;
  ++counts_.misses;
}

bool PagePlacement::plan_window_of_parts(PagePlan& plan, bool of_all_streams) {
  const PageRequest& request = plan.request;
  free_.find_parts();
  const auto window = plan_window(parts_.endings(request.stream, of_all_streams),
                                  parts_.beginnings(request.stream, of_all_streams), request.sectors, table_.page());
  if (!window) return false;
  // A fragment's handle may be wholly free, in parts of several streams.
  DonorSearch search = donors_beside(request, *window);
  const std::vector<FreeHandle> donors = search.choose(window->pages);
  std::int64_t created = window->pages;
  for (const FreeHandle& donor : donors) created -= donor.pages;
  if (created > page_limit_ - table_.pages()) return false;
  // Beyond what was ever live memory is created for want of free handles alone, be they too large for the window.
  if (created > 0 && table_.pages() + created > pages_before_gathering(request) && search.first_left()) return false;

  plan.kind = PlanKind::placed;
  plan.keeps_exact = true;
  if (window->head > 0) {
    const Fragment& ending = window->ending;
    take(plan, ending.address + ending.sectors - window->head, window->head);
    add_mapped(plan, ending.slot.handle, table_.pages_of(ending.slot.handle), false);
  }
  const Sectors begin = table_.page().sectors(plan.gather.pages) - window->head + window->skipped;
  add_donors(plan, donors);
  add_new(plan, created, false);
  if (window->tail > 0) {
    const PageTable::Handle handle = window->beginning.slot.handle;
    take(plan, window->beginning.address, window->tail);
    add_mapped(plan, handle, table_.pages_of(handle), false);
  }
  set_addresses(plan, false);
  plan.address = plan.gather.address + begin;
  ++counts_.chosen;
  return true;
}

// The limit leaves no whole pages for it: free bytes of any streams side by side; or all that is free in whole handles,
// and the ends of two more. If that does not serve, no placement would.
void PagePlacement::plan_last_resort(PagePlan& plan) {
  const PageRequest& request = plan.request;
  if (request.may_take_others)
    if (const auto address = free_stretch(free_, request.sectors))
      return place_at(plan, {*address, &PlacementCounts::fits});
  const std::int64_t most = std::max<std::int64_t>(0, page_limit_ - table_.pages());
  const auto window =
      last_window(parts_, free_, table_, request.stream, request.may_take_others, request.sectors, most);
  if (!window) return;
  plan.kind = PlanKind::placed;
  const auto add_part = [&](const LastWindow::Part& part) {
    if (part.handle < 0) return;
    take(plan, part.address, part.sectors);
    add_mapped(plan, part.handle, table_.pages_of(part.handle), false);
  };
  add_part(window->ending);
  const Sectors begin = table_.page().sectors(plan.gather.pages) - window->ending.sectors;
  add_donors(plan, window->handles);
  if (window->created > 0) add_new(plan, window->created, false);
  add_part(window->beginning);
  set_addresses(plan, false);
  plan.address = plan.gather.address + begin;
  ++counts_.chosen;
}

// So many handles that there were, for a request whose block does not count as live yet.
void PagePlacement::note_gathered(std::int64_t handles, const PageRequest& request) noexcept {
  catch_up();
  const Sectors all = table_.page().sectors(table_.pages());
  const Sectors waits = all - free_.sectors() - live_ - request.sectors;
  if (room_to_settle_.gathered(handles, waits, all, table_.pages())) forget_places();
  fits_first_.gathered(request.stream, handles, turnover(request.stream).came, table_.pages());
}

// The driver has done its part: the mappings are recorded, and what the block does not take of the handles is free.
void PagePlacement::adopt(const PagePlan& plan) {
  --under_way_;
  const Sectors end = plan.address + plan.request.sectors;
  std::int64_t gathered = 0;
  for (const Gather::Step& step : plan.gather.steps) {
    table_.map(step.handle, step.address);
    spending_.mapped(1);
    if (step.is_new) spending_.created(1);
    gathered += step.is_new ? 0 : 1;
    if (!step.moves_home) continue;
    table_.move_home(step.handle, step.address);
    const Sectors step_end = step.address + table_.page().sectors(step.pages);
    const Sectors before = std::min(step_end, plan.address);
    const Sectors behind = std::max(step.address, end);
    if (before > step.address) free_.give(step.address, before - step.address, plan.request.stream);
    if (behind < step_end) free_.give(behind, step_end - behind, plan.request.stream);
  }
  spending_.allowed();
  note_gathered(gathered, plan.request);
  log_.grow(most_logged());
}

void PagePlacement::abandon(const PagePlan& plan) {
  if (plan.known != KnownPlaces::kNone) return abandon_known(plan);
  if (plan.is_out) --plans_out_;
  for (const FreeRun& piece : plan.taken) free_.give(piece.address, piece.sectors, piece.stream);
  free_.drop_room(plan.room);
  for (const Gather::Step& step : plan.gather.steps)
    if (step.is_new) remove_handle(step.handle);
  if (!plan.is_under_way) return;
  --under_way_;
  table_.cancel(plan.gather.address, plan.gather.pages);
}

}  // namespace cistern
