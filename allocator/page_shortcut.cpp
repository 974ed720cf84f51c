// Blocks that come to places where they were before, and blocks that go: noted with the place alone. The free runs and
// the homes of handles follow when somebody looks at them, and so do bytes that became another stream's.

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <new>
#include <utility>

#include "allocator/page_placement.h"

namespace cistern {

// Whether the number is that of the entry's place still, and a block may come there. Whose came there last does not
// matter: whose the bytes are is in the entry's sum.
bool PagePlacement::is_place_of(const PlacementLog::Entry& entry, KnownPlaces::Number known) const {
  return places_.names(known, entry.place.address, entry.asked()) && !places_[known].is_live;
}

PlacementLog::Number PagePlacement::find_known(const PageRequest& request) const {
  if (!is_open()) return PlacementLog::kNone;
  const PlacementLog::Number number = log_.exact(log_.own_position(request.stream), request.sectors);
  if (number == PlacementLog::kNone) return number;
  const PlacementLog::Entry& entry = log_.entry(number);
  if (!is_place_of(entry, entry.known)) return PlacementLog::kNone;
  if (!fits_go_first(request.stream)) return number;
  // Where free runs go first a place is as good as one in them, as long as it lies in one.
  if (homes_may_move_) catch_up();
  return lies_at_home(entry.place.address, entry.asked()) ? number : PlacementLog::kNone;
}

bool PagePlacement::lies_at_home(Sectors address, Sectors sectors) const noexcept {
  for (const Sectors end = address + sectors; address < end;) {
    const PageTable::Handle handle = table_.handle_at(address);
    const Sectors mapped = table_.mapping_begin(address);
    if (table_.home_of(handle) != mapped) return false;
    address = mapped + table_.sectors_of(handle);
  }
  return true;
}

std::optional<PagedBlock> PagePlacement::take_known(const PageRequest& request) {
  const PlacementLog::Number number = find_known(request);
  if (number == PlacementLog::kNone) return std::nullopt;
  return block_at(take(number, request.stream));
}

KnownPlaces::Number PagePlacement::take(PlacementLog::Number known, StreamNumber stream, bool moves_peak) {
  const PlacementLog::Entry& entry = log_.entry(known);
  const KnownPlaces::Number number = entry.known;
  come(number, stream);
  log_.follow(known);
  count_come(places_[number], entry.less, moves_peak);
  ++counts_.logged;
  return number;
}

KnownPlaces::Number PagePlacement::take_again(Sectors address, Sectors sectors, StreamNumber stream, bool moves_peak) {
  const KnownPlaces::Number number = come_again(address, sectors, stream);
  count_come(places_[number], 0, moves_peak);
  ++counts_.logged;
  return number;
}

// A state is a set of places, so what was free beside them is free in the same state again. That holds whatever parts
// of these places blocks have now, if they had all of them then; if no bytes became another stream's since, and none
// wait.
PlacementLog::Number PagePlacement::find_larger(const PageRequest& request) const {
  if (!is_open() || freed_ != 0 || bytes_changed_hands_ || fits_go_first(request.stream)) return PlacementLog::kNone;
  const PlacementLog::Position position = log_.own_position(request.stream);
  const PlacementLog::Number number = log_.expected(position, request.sectors);
  if (number == PlacementLog::kNone || !log_.entry(number).is_beside_whole) return PlacementLog::kNone;
  // What was just like it goes first, wherever it has to be looked for.
  if (log_.exact(position, request.sectors) != PlacementLog::kNone) return PlacementLog::kNone;
  const bool has_room = log_.has_room() && places_.has_room(1, most_places()) && free_.has_room(kRunsOfChange);
  return has_room ? number : PlacementLog::kNone;
}

KnownPlaces::Number PagePlacement::take_part(PlacementLog::Number larger, const PageRequest& request, bool moves_peak) {
  const LoggedPlace place = log_.entry(larger).place;
  const bool is_exact = log_.entry(larger).asked() == request.sectors;
  const PlacementLog::Position position = log_.own_position(request.stream);
  const KnownPlaces::Number number = come_again(place.address, request.sectors, request.stream);
  log_.follow(larger);
  tell_log({position, place, request.sectors, number, larger, is_exact, true});
  count_come(places_[number], static_cast<std::uint32_t>(place.sectors - request.sectors), moves_peak);
  ++counts_.logged;
  return number;
}

// A block has the place, which may be a new one. Throws std::bad_alloc, unchanged.
KnownPlaces::Number PagePlacement::come_again(Sectors address, Sectors sectors, StreamNumber stream) {
  provide_place();
  const KnownPlaces::Number number = places_.obtain(address, sectors);
  assert(!places_[number].is_live);
  describe(places_[number], table_.covers_any(address, sectors));
  come(number, stream);
  return number;
}

// `less`: sectors that its request was smaller than the place of the log's entry.
void PagePlacement::count_come(KnownPlace& place, std::uint32_t less, bool moves_peak) noexcept {
  place.less = less;
  place.pages_then = static_cast<std::int32_t>(table_.pages());
  const Sectors logged = place.sectors + less;
  log_.arrived(place.stream, less == 0 ? place.mark : PlacementLog::mark_of({place.address, logged}), place.mark);
  log_.fetch_state_of(place.stream);
  live_ += place.sectors;
  if (moves_peak) peak_live_ = std::max(peak_live_, live_);
  ++blocks_;
  with_less_ += less == 0 ? 0 : 1;
  Turnover& turnover = turnover_[static_cast<std::size_t>(place.stream)];
  ++turnover.came;
  turnover.live += place.sectors;
  turnover.peak = std::max(turnover.peak, turnover.live);
}

// A block has the place, and the free runs do not know. Throws std::bad_alloc, unchanged.
void PagePlacement::come(KnownPlaces::Number known, StreamNumber stream) {
  KnownPlace& place = places_[known];
  free_.keep_room(kRunsOfChange - place.room);
  place.room = kRunsOfChange;
  place.stream = stream;
  place.is_live = true;
  place.came_at = ++clock_;
  some_came_ = true;
  if (fits_first_.of_any() && !lies_at_home(place.address, place.sectors)) homes_may_move_ = true;
  places_.change(known);
}

void PagePlacement::settle(KnownPlaces::Number known) {
  KnownPlace& place = places_[known];
  place.is_live = false;
  place.left_at = mark_;
  log_.came_free(place.stream, place.mark);
  if (!place.is_named && place.is_at_home) free_.fetch_first(place.address);
  places_.change(known);
  --blocks_;
  --freed_;
}

void PagePlacement::turned(KnownPlaces::Number known, std::int64_t times) {
  const KnownPlace& place = places_[known];
  harm_.ended_of_class(place.size_class, place.stream, table_.pages() > place.pages_then, times);
  fits_first_.passed(place.stream, times);
  Turnover& turnover = turnover_[static_cast<std::size_t>(place.stream)];
  turnover.came += times;
  turnover.went += times;
}

void PagePlacement::recurred(StreamNumber stream, Sectors sectors, std::int64_t times) {
  harm_.ended_of_class(CreationHarm::class_of(sectors), stream, false, times);
  fits_first_.passed(stream, times);
  Turnover& turnover = turnover_[static_cast<std::size_t>(stream)];
  turnover.came += times;
  turnover.went += times;
}

void PagePlacement::carry_out_changes() const noexcept {
  homes_may_move_ = false;
  if (ages_.are_kept()) note_uses();
  if (mark_ != kFirstMark)
    for (const KnownPlaces::Number number : places_.changed()) mark_left(places_[number]);
  if (std::exchange(some_came_, false))
    follow_what_came();
  else
    give_left_bytes(false);
  for (const KnownPlaces::Number number : places_.changed()) {
    KnownPlace& place = places_[number];
    const std::size_t room = place.is_live ? kRunsOfBlock : 0;
    free_.drop_room(place.room - room);
    place.room = static_cast<std::uint8_t>(room);
    place.came_at = 0;
    places_.looked_at(number);
  }
  places_.changed().clear();
}

// Where homes move, what came back to its place lies elsewhere than the free runs have it.
void PagePlacement::follow_what_came() const noexcept {
  std::sort(places_.changed().begin(), places_.changed().end(),
            [this](KnownPlaces::Number a, KnownPlaces::Number b) { return places_[a].came_at > places_[b].came_at; });
  const bool moves = hands_changed_ || some_homes_move();
  give_left_bytes(moves);
  if (moves) bring_homes();
  if (std::exchange(hands_changed_, false)) hand_bytes_over();
  take_known_bytes();
}

void PagePlacement::mark_left(const KnownPlace& place) const noexcept {
  table_.for_each_handle_in(place.address, place.sectors, [&](PageTable::Handle handle) {
    Mark& left_at = left_at_[static_cast<std::size_t>(handle)];
    left_at = std::max(left_at, place.left_at);
  });
}

// Bytes that the free runs have as taken. No two such places share one.
void PagePlacement::give_left_bytes(bool of_live_ones) const noexcept {
  for (const KnownPlaces::Number number : places_.changed()) {
    KnownPlace& place = places_[number];
    if (!place.is_taken || (place.is_live && !of_live_ones)) continue;
    if (place.is_at_home)
      free_.give(place.address, place.sectors, place.stream);
    else
      table_.for_each_piece(place.address, place.sectors, [&](Sectors home, Sectors length) {
        free_.give(home, length, place.stream);
        return true;
      });
    place.is_taken = false;
  }
}

// Calls visit(handle, address, place) where a handle was covered last, if it is not at home there, as long as it
// returns true. Returns whether it always did. Requires: changes are by when blocks came, the last first.
template <class Visit>
bool PagePlacement::for_each_new_home(Visit&& visit) const {
  if (++round_ == 0) {
    std::fill(decided_.begin(), decided_.end(), 0);
    ++round_;
  }
  for (const KnownPlaces::Number number : places_.changed()) {
    const KnownPlace& place = places_[number];
    if (place.came_at == 0) break;
    if (!place.covers_handles) continue;
    const Sectors end = place.address + place.sectors;
    for (Sectors at = place.address; at < end;) {
      const PageTable::Handle handle = table_.handle_at(at);
      const Sectors mapped = table_.mapping_begin(at);
      at = mapped + table_.sectors_of(handle);
      if (mapped < place.address || at > end) continue;
      std::uint32_t& decided = decided_[static_cast<std::size_t>(handle)];
      if (std::exchange(decided, round_) == round_ || table_.home_of(handle) == mapped) continue;
      if (!visit(handle, mapped, place)) return false;
    }
  }
  return true;
}

bool PagePlacement::some_homes_move() const noexcept {
  return !for_each_new_home([](PageTable::Handle, Sectors, const KnownPlace&) { return false; });
}

// All bytes of such a handle are free here, for who covered it had them all.
void PagePlacement::bring_homes() const noexcept {
  for_each_new_home([this](PageTable::Handle handle, Sectors address, const KnownPlace& place) {
    const Sectors count = table_.sectors_of(handle);
    free_.take(table_.home_of(handle), count);
    table_.move_home(handle, address);
    free_.give(address, count, place.stream);
    return true;
  });
}

// Bytes are those of the stream whose block came there last. All of such places are free here.
void PagePlacement::hand_bytes_over() const noexcept {
  for (std::size_t i = places_.changed().size(); i-- > 0;) {
    const KnownPlace& place = places_[places_.changed()[i]];
    if (place.came_at == 0) continue;
    table_.for_each_piece(place.address, place.sectors, [&](Sectors home, Sectors length) {
      if (free_.is_free_of(home, length, place.stream)) return true;
      free_.take(home, length);
      free_.give(home, length, place.stream);
      return true;
    });
  }
}

// Of live blocks that the free runs have as free.
void PagePlacement::take_known_bytes() const noexcept {
  for (const KnownPlaces::Number number : places_.changed()) {
    KnownPlace& place = places_[number];
    if (place.is_taken || !place.is_live) continue;
    table_.for_each_piece(place.address, place.sectors, [&](Sectors home, Sectors length) {
      free_.take(home, length);
      return true;
    });
    place.is_taken = true;
    place.is_at_home = false;  // not all of it, as far as is known
  }
}

}  // namespace cistern
