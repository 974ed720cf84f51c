// Requests that their stream's own free bytes serve, and that the log does not know: what most requests are where sizes
// do not come again. They need nothing of others, and no driver.

#include <cstddef>

#include "allocator/page_placement.h"

namespace cistern {

// False: `plan` would map handles, or take bytes of others where that may be had.
bool PagePlacement::choose_own_bytes(OwnBytes& own) {
  const PageRequest& request = own.request;
  const auto choose = [&](std::span<const PlacementLog::Position> positions) {
    return choose_free_bytes(request, positions, own.choice, own.fit);
  };
  const bool is_chosen = knows_hand_overs_ ? choose(Positions{own.position, log_.position_among_all(request.stream)})
                                           : choose({&own.position, 1});
  if (is_chosen) {
    if (own.choice.run != kNoRun) return true;  // which is the stream's own
    return is_usable(own.choice.address, {request.sectors, request.stream, false});
  }
  if (!own.fit || is_worth_a_window(request)) return false;
  own.choice = PlaceChoice::in(own.fit);
  return true;
}

// Each piece of one's own free bytes at home is of one run, which may become two; and the block keeps some for its
// free.
bool PagePlacement::has_room_for(const OwnBytes& own) const {
  std::size_t pieces = own.choice.run != kNoRun ? 1 : 0;
  if (pieces == 0)
    table_.for_each_piece(own.choice.address, own.request.sectors,
                          [&](Sectors, Sectors) { return ++pieces <= kPiecesOfOwn; });
  return pieces <= kPiecesOfOwn && free_.has_room(pieces + kRunsOfBlock);
}

bool PagePlacement::find_own(OwnBytes& own) noexcept {
  if (!is_open() || retires() || may_begin_retirement() || !log_.has_room()) return false;
  const PageRequest& request = own.request;
  own.position = log_.own_position(request.stream);
  // What is handed over once more is had without a look at the free runs, by who has the heap's lock.
  if (find_hand_over(request).record != nullptr && log_.exact(own.position, request.sectors) == PlacementLog::kNone)
    return false;
  log_.fetch(own.position, request.sectors);
  windows_.fetch(request.sectors, request.stream);
  catch_up();
  if (!places_.has_room(1, most_places()) || !choose_own_bytes(own) || !has_room_for(own)) return false;
  if (log_.keeps(own.position)) places_.fetch(own.choice.address, request.sectors);
  return true;
}

// As a plan's place_at and commit; there is room for all of it.
KnownPlaces::Number PagePlacement::take_own(const OwnBytes& own, bool moves_peak) noexcept {
  const auto& [request, choice, fit, position] = own;
  const bool is_at_home = choice.run != kNoRun;
  free_.keep_room(kRunsOfBlock);
  if (is_at_home)
    free_.take_of(choice.run, choice.address, choice.address + request.sectors);
  else
    table_.for_each_piece(choice.address, request.sectors, [&](Sectors home, Sectors length) {
      free_.take(home, length);
      return true;
    });
  ++(counts_.*choice.count);
  LoggedPlace place{choice.address, request.sectors};
  bool is_exact = false;
  if (choice.logged != PlacementLog::kNone) {
    const PlacementLog::Entry& entry = log_.entry(choice.logged);
    place.sectors = entry.place.sectors;
    is_exact = entry.asked() == request.sectors;
    log_.follow(choice.logged);
  }
  note_fit(request, fit);
  if (is_at_home) note_fit_at_home(position, request);
  // Where the log has nothing to do with the state, it will not name the place: no block comes there again.
  const bool is_named = log_.keeps(position);
  const KnownPlaces::Number known =
      is_named ? places_.obtain(choice.address, request.sectors) : places_.add(choice.address, request.sectors);
  const bool covers_handles = (is_named || !is_at_home) && bring_home(choice.address, request.sectors, is_at_home);
  know(known, request.stream, covers_handles, is_at_home);
  tell_log({position, place, request.sectors, known, choice.logged, is_exact, with_less_ == 0});
  count_come(places_[known], static_cast<std::uint32_t>(place.sectors - request.sectors), moves_peak);
  return known;
}

}  // namespace cistern
