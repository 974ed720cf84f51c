#include "allocator/page_placement.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

namespace cistern {
namespace {

// A class of which so few blocks see memory created gains nothing by windows.
constexpr double kLeastHarm = 0.1;
// A page that is saved on a block of more pages is not worth its calls.
constexpr std::int64_t kMostPagesOfAWindow = 16;

}  // namespace

PagePlacement::PagePlacement(PageSize page, std::int64_t page_limit, std::int64_t arena_pages, std::size_t log_entries)
    : table_(page), log_(log_entries), page_limit_(page_limit), arena_pages_(arena_pages), log_entries_(log_entries) {
  arenas_.fill(-1);
}

// What its frees need is there from its first request on, and what most requests do.
void PagePlacement::add_stream(StreamNumber stream) {
  candidates_.reserve(PlacementLog::kMostCandidates);
  free_.add_stream(stream);
  free_.provide_for_many(stream);
  harm_.add_stream(stream);
  exact_fits_.add_stream(stream);
  fits_first_.add_stream(stream);
  log_.add_stream(stream);
  const auto count = static_cast<std::size_t>(stream) + 1;
  if (turnover_.size() < count) turnover_.resize(count);
  if (freed_at_.size() < count) freed_at_.resize(count, kFirstMark);
}

PageTable::Arena PagePlacement::arena_of(StreamNumber stream) {
  PageTable::Arena& arena = growing(stream);
  if (arena >= 0) return arena;
  if (spare_arenas_.empty()) {
    const auto count = static_cast<std::size_t>(table_.arenas()) + 1;
    spare_arenas_.reserve(count);
    is_open_.resize(count);
    spare_arenas_.push_back(table_.add_arena());
  }
  arena = spare_arenas_.back();
  spare_arenas_.pop_back();
  is_open_[static_cast<std::size_t>(arena)] = true;
  return arena;
}

bool PagePlacement::is_usable(Sectors address, const PageRequest& request) const {
  return table_.for_each_piece(address, request.sectors, [&](Sectors home, Sectors length) {
    return request.may_take_others ? free_.is_free(home, length) : free_.is_free_of(home, length, request.stream);
  });
}

bool PagePlacement::is_worth_a_window(const PageRequest& request) const {
  const PageSize page = table_.page();
  return request.sectors > page.sectors() / 2 && request.sectors <= page.sectors(kMostPagesOfAWindow) &&
         spending_.affords_window(page.whole(request.sectors) + 2, table_.pages()) &&
         harm_.of(request.sectors, request.stream) >= kLeastHarm;
}

// What is known first may be a hand-over, and the request may have none: what it gets is to be known in its place.
void PagePlacement::pass_over_hand_over(const PagePlan& plan) {
  if (plan.request.may_take_others) return;
  const PlacementLog::Number first = log_.exact(plan.positions.back(), plan.request.sectors);
  if (first != PlacementLog::kNone && hand_overs_.find(log_.entry(first).known) != nullptr) log_.pass_over(first);
}

// Takes free bytes for the plan, with room for giving them back. Throws std::bad_alloc: the plan is to be abandoned.
void PagePlacement::take(PagePlan& plan, Sectors address, Sectors sectors) {
  for (const Sectors end = address + sectors; address < end; address = plan.taken.back().end())
    take_of(plan, free_.holding(address), address, end);
}

// The same of a run, up to `end`.
void PagePlacement::take_of(PagePlan& plan, RunNumber run, Sectors address, Sectors end) {
  if (plan.taken.capacity() == plan.taken.size()) plan.taken.reserve(2 * plan.taken.size() + 4);
  free_.keep_room(2);  // one for what the take parts
  plan.taken.push_back(free_.take_of(run, address, end));
  free_.drop_room(1);
  ++plan.room;
}

void PagePlacement::place_at(PagePlan& plan, const PlaceChoice& choice) {
  places_.fetch(choice.address, plan.request.sectors);
  if (choice.logged != PlacementLog::kNone) {
    const PlacementLog::Entry& entry = log_.entry(choice.logged);
    plan.logged = choice.logged;
    plan.logged_sectors = entry.place.sectors;
    plan.is_exact = entry.asked() == plan.request.sectors;
  }
  plan.is_at_home = choice.run != kNoRun;
  if (plan.is_at_home)
    take_of(plan, choice.run, choice.address, choice.address + plan.request.sectors);
  else
    table_.for_each_piece(choice.address, plan.request.sectors, [&](Sectors home, Sectors length) {
      take(plan, home, length);
      return true;
    });
  plan.kind = PlanKind::placed;
  plan.address = choice.address;
  ++(counts_.*choice.count);
}

void PagePlan::list_owners() {
  for (const FreeRun& piece : taken)
    if (piece.stream != request.stream && std::find(owners.begin(), owners.end(), piece.stream) == owners.end())
      owners.push_back(piece.stream);
}

// Of a plan that comes. Throws std::bad_alloc, unchanged.
void PagePlacement::provide_place() { places_.provide(static_cast<std::size_t>(plans_out_) + 1, most_places()); }

// It has what it takes to be committed. Throws std::bad_alloc.
void PagePlacement::let_out(PagePlan& plan) {
  free_.keep_room(kRunsOfBlock);
  plan.room += kRunsOfBlock;
  plan.list_owners();
  plan.is_out = true;
  ++plans_out_;
  if (!plan.gather.empty()) expect_places();
}

PagePlan PagePlacement::plan(const PageRequest& request) {
  PagePlan plan;
  plan.request = request;
  log_.fetch(log_.own_position(request.stream), request.sectors);
  catch_up();
  try {
    add_stream(request.stream);
    provide_place();
    choose_place(plan);
    if (plan.kind == PlanKind::placed) let_out(plan);
    return plan;
  } catch (...) {
    abandon(plan);
    throw;
  }
}

// Whether the request can go where the entry says.
bool PagePlacement::is_usable_as_logged(const PageRequest& request, PlacementLog::Number number) const {
  return is_usable(log_.entry(number).place.address, request);
}

// First what a step that comes again takes unasked, so that it gets the same from here: its own place, or that of a
// hand-over; then what came next, for a smaller one. Then also a place of its own that others had since: a step that
// hands bytes to and fro comes to an end so, which makes no driver calls. None: the log has no place that can be had.
PlacementLog::Number PagePlacement::choose_logged(const PageRequest& request,
                                                  std::span<const PlacementLog::Position> all) {
  if (std::none_of(all.begin(), all.end(), [this](const auto& position) { return log_.keeps(position); }))
    return PlacementLog::kNone;
  for (const auto find : {&PlacementLog::exact, &PlacementLog::expected})
    for (const PlacementLog::Position& position : all) {
      const PlacementLog::Number number = (log_.*find)(position, request.sectors);
      if (number != PlacementLog::kNone && is_usable_as_logged(request, number)) return number;
    }
  for (const PlacementLog::Position& position : all) {
    log_.candidates(position, request.sectors, candidates_);
    for (const PlacementLog::Number number : candidates_)
      if (is_usable_as_logged(request, number)) return number;
  }
  return PlacementLog::kNone;
}

TightFit PagePlacement::find_fit(const PageRequest& request) const {
  const int most = exact_fits_.are_rare(request.stream) ? kFewFits : kMostFits;
  return tight_fit(free_.by_size(), request.stream, request.sectors, table_.page(), most);
}

// False: no run holds the request, or `fit` does, which touches more whole pages than it needs.
bool PagePlacement::choose_free_bytes(const PageRequest& request, std::span<const PlacementLog::Position> positions,
                                      PlaceChoice& choice, TightFit& fit) {
  const PageSize page = table_.page();
  const auto usable = [&](Sectors address) { return is_usable(address, request); };
  const bool fits_are_first = fits_go_first(request.stream);
  if (fits_are_first && (fit = find_fit(request))) {
    choice = PlaceChoice::in(fit);
    return true;
  }
  if (const PlacementLog::Number logged = choose_logged(request, positions); logged != PlacementLog::kNone) {
    choice = {log_.entry(logged).place.address, &PlacementCounts::logged, logged};
    return true;
  }
  if (request.sectors >= page.sectors() / 2)
    if (const auto window = windows_.exact(request.sectors, request.stream, usable)) {
      choice = {*window, &PlacementCounts::windows};
      return true;
    }
  if (!fits_are_first) fit = find_fit(request);
  if (fit && fit.pages <= page.whole(request.sectors)) {
    choice = PlaceChoice::in(fit);
    return true;
  }
  if (fit) return false;
  const auto window = windows_.longer(request.sectors, request.stream, usable);
  if (window) choice = {*window, &PlacementCounts::windows};
  return window.has_value();
}

void PagePlacement::set_positions(PagePlan& plan) const {
  plan.positions = {log_.own_position(plan.request.stream), log_.position_among_all(plan.request.stream)};
  plan.is_beside_whole = with_less_ == 0;
  plan.log_was_forgotten = log_.times_forgotten();
}

void PagePlacement::choose_place(PagePlan& plan) {
  set_positions(plan);
  pass_over_hand_over(plan);
  PlaceChoice choice;
  if (choose_free_bytes(plan.request, known_under(plan.positions), choice, plan.fit)) return place_at(plan, choice);
  if (is_worth_a_window(plan.request) && plan_window_of_parts(plan, false)) return;
  if (plan.fit) return place_at(plan, PlaceChoice::in(plan.fit));
  plan_miss(plan);
}

// Whether sizes come again.
void PagePlacement::note_fit(const PageRequest& request, const TightFit& fit) noexcept {
  if (fit && request.sectors >= table_.page().sectors()) exact_fits_.found(request.stream, fit.is_exact);
}

// A free run serves it. Where these go first the log may have another place for it, elsewhere: this one is to be known.
void PagePlacement::note_fit_at_home(const PlacementLog::Position& position, const PageRequest& request) noexcept {
  fits_first_.passed(request.stream);
  if (!fits_go_first(request.stream)) return;
  if (const PlacementLog::Number first = log_.exact(position, request.sectors); first != PlacementLog::kNone)
    log_.pass_over(first);
}

// What is known of places only saves calls: without host memory it is forgotten.
void PagePlacement::note(const PagePlan& plan, const LoggedPlace& place, KnownPlaces::Number known) noexcept {
  const Sectors sectors = plan.request.sectors;
  const StreamNumber stream = plan.request.stream;
  const PlacementLog::Position& position = plan.owners.empty() ? plan.positions.front() : plan.positions.back();
  try {
    if (plan.keeps_exact) windows_.note_exact(sectors, stream, plan.address);
    if (plan.keeps_length) windows_.note_length(sectors, stream, plan.address);
    if (!is_of_log(plan)) return;
    if (!plan.owners.empty() && log_.keeps(position)) {
      known = note_hand_over(plan, known);
      knows_hand_overs_ = true;
    }
  } catch (const std::bad_alloc&) {
    return;
  }
  tell_log({position, place, sectors, known, plan.logged, plan.is_exact, plan.is_beside_whole});
}

void PagePlacement::tell_log(const Told& told) noexcept {
  // Where much is told, what is taken now makes way for what was: other requests need the room.
  const bool has_room = 2 * log_.size() < log_.capacity();
  const bool is_of_its_key = log_.has(told.entry) && log_.entry(told.entry).position.key == told.position.key;
  if (is_of_its_key && told.is_exact && (log_.entry(told.entry).position == told.position || !has_room))
    return log_.note_free(told.entry, told.position, told.place, told.known, told.is_beside_whole);
  // What an entry served otherwise is told, too: a larger request's, or one when other bytes of places were taken.
  // The same request is served so again, whatever came before it.
  const auto less = static_cast<std::uint32_t>(told.place.sectors - told.sectors);
  try {
    log_.append(told.position, told.place, told.known, {less, told.entry, told.is_beside_whole});
  } catch (const std::bad_alloc&) {
  }
}

// What depends on the place alone, and what is mapped there.
void PagePlacement::describe(KnownPlace& place, bool covers_handles) noexcept {
  place.mark = PlacementLog::mark_of({place.address, place.sectors});
  place.size_class = static_cast<std::uint16_t>(CreationHarm::class_of(place.sectors));
  place.covers_handles = covers_handles;
}

// All of the place is its stream's from here on, until bytes go to another stream.
void PagePlacement::know(KnownPlaces::Number number, StreamNumber stream, bool covers_handles,
                         bool is_at_home) noexcept {
  KnownPlace& place = places_[number];
  describe(place, covers_handles);
  place.is_at_home = is_at_home;
  place.stream = stream;
  place.room = kRunsOfBlock;
  place.is_live = place.is_taken = true;
}

// Handles that the block covers whole come home to it: what is free again later is one run there. Whether there are.
bool PagePlacement::bring_home(Sectors address, Sectors sectors, bool is_at_home) noexcept {
  if (is_at_home) return table_.covers_any(address, sectors);
  bool covers_handles = false;
  table_.for_each_covered(address, sectors, [&](PageTable::Handle handle, Sectors mapped) {
    table_.move_home(handle, mapped);
    covers_handles = true;
  });
  return covers_handles;
}

PagedBlock PagePlacement::commit(PagePlan& plan, bool moves_peak) {
  if (plan.known != KnownPlaces::kNone) return commit_known(plan);
  const Sectors sectors = plan.request.sectors;
  if (is_of_log(plan) && log_.has(plan.logged)) log_.follow(plan.logged);  // it may have gone since the plan was made
  if (!plan.gather.empty()) adopt(plan);
  note_fit(plan.request, plan.fit);
  if (plan.is_at_home) note_fit_at_home(plan.positions.front(), plan.request);
  const KnownPlaces::Number known = places_.obtain(plan.address, sectors);
  know(known, plan.request.stream, bring_home(plan.address, sectors, plan.is_at_home), plan.is_at_home);
  const LoggedPlace place{plan.address, plan.logged_sectors != 0 ? plan.logged_sectors : sectors};
  mark_handed_over(plan);
  note(plan, place, known);
  if (!plan.owners.empty()) change_hands(plan.taken, plan.request.stream);
  count_come(places_[known], static_cast<std::uint32_t>(place.sectors - sectors), moves_peak);
  free_.drop_room(plan.room - kRunsOfBlock);
  plan.is_out = false;
  --plans_out_;
  return block_at(known);
}

PagedBlock PagePlacement::block_at(KnownPlaces::Number known) const {
  const KnownPlace& place = places_[known];
  const LoggedPlace logged{place.address, place.sectors + place.less};
  return {place.address, place.sectors, place.stream, logged, place.pages_then, known};
}

void PagePlacement::freed(KnownPlaces::Number known) {
  KnownPlace& place = places_[known];
  place.left_at = freed_at_[static_cast<std::size_t>(place.stream)] = mark_;
  live_ -= place.sectors;
  ++freed_;
  Turnover& turnover = turnover_[static_cast<std::size_t>(place.stream)];
  ++turnover.went;
  turnover.live -= place.sectors;
  const bool is_whole = place.less == 0;
  with_less_ -= is_whole ? 0 : 1;
  log_.left(place.stream, is_whole ? place.mark : PlacementLog::mark_of({place.address, place.sectors + place.less}));
  log_.fetch_state_of(place.stream);
  harm_.ended_of_class(place.size_class, place.stream, table_.pages() > place.pages_then);
  // What nobody will find by its place is given to the free runs with the next request.
  if (!place.is_named && place.is_at_home) free_.fetch(place.address);
}

void PagePlacement::begin_peaks() noexcept {
  for (Turnover& turnover : turnover_) turnover.peak = turnover.live;
}

std::int64_t PagePlacement::pages_of_peaks() const noexcept {
  std::int64_t pages = 0;
  for (const Turnover& turnover : turnover_) pages += table_.page().covering(turnover.peak);
  return pages;
}

void PagePlacement::audit(Sectors live, std::int64_t blocks, const PlacementLog::Key& state) const {
  if (live != live_ || blocks != blocks_) throw std::logic_error("the count of placed blocks is not their number");
  if (!(state == log_.state_of_all())) throw std::logic_error("the log's state is not that of the live blocks");
  std::int64_t unfreed = 0;
  Sectors unfreed_sectors = 0;
  for (const Turnover& turnover : turnover_) {
    unfreed += turnover.came - turnover.went;
    unfreed_sectors += turnover.live;
    if (turnover.live > turnover.peak) throw std::logic_error("a stream has more than the most that it had");
  }
  if (unfreed_sectors != live_) throw std::logic_error("what streams have is not what is live");
  if (unfreed != blocks_ - freed_) throw std::logic_error("the count of freed blocks is not their number");
  std::int64_t with_less = 0;
  places_.for_each_live([&](const KnownPlace& place) { with_less += place.less != 0 ? 1 : 0; });
  if (with_less < with_less_ || (freed_ == 0 && plans_out_ == 0 && with_less != with_less_))
    throw std::logic_error("the count of blocks with less than their place is not their number");
}

void PagePlacement::audit() const {
  catch_up();
  places_.audit();
  table_.audit();
  free_.audit();
  free_.find_parts();
  parts_.audit(free_);
  log_.audit();
  const auto is_at_home = [this](Sectors address, Sectors sectors) {
    return table_.for_each_piece(address, sectors,
                                 [&](Sectors home, Sectors length) { return home == address && length == sectors; });
  };
  free_.for_each([&](const FreeRun& run) {
    if (!table_.is_mapped(run.address, run.sectors)) throw std::logic_error("free bytes where nothing is mapped");
    if (!is_at_home(run.address, run.sectors)) throw std::logic_error("free bytes that are not at home");
  });
  places_.for_each_live([&](const KnownPlace& place) {
    if (place.is_taken && place.is_at_home && !is_at_home(place.address, place.sectors))
      throw std::logic_error("a block that was at home is not");
  });
}

}  // namespace cistern
