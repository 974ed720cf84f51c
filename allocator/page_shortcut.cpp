// Blocks that come to places where they were before, and blocks that go: noted with the place alone. The free runs and
// the homes of handles follow when somebody looks at them.

#include <algorithm>
#include <cstddef>
#include <utility>

#include "allocator/page_placement.h"

namespace cistern {

std::optional<PagedBlock> PagePlacement::take_known(const PageRequest& request) {
  if (plans_out_ != 0 || departures_ != 0 || unsettled_ != 0) return std::nullopt;
  const PlacementLog::Number number = log_.exact(log_.key_of(request.stream), request.sectors);
  if (number == PlacementLog::kNone) return std::nullopt;
  const PlacementLog::Entry& entry = log_.entry(number);
  if (!places_.has(entry.known)) return std::nullopt;
  KnownPlace& place = places_[entry.known];
  const bool is_same = place.address == entry.place.address && place.sectors == entry.asked();
  if (!is_same || place.is_live || place.stream != request.stream || place.epoch != epoch_) return std::nullopt;
  constexpr std::size_t kRuns = 2 * kRunsOfBlock;
  free_.keep_room(kRuns - place.room);
  place.room = kRuns;
  place.is_live = true;
  if (place.covers_handles) place.came_at = ++clock_;
  places_.change(entry.known);
  log_.follow(number);
  log_.arrived(entry.less == 0 ? place.mark : PlacementLog::mark_of(entry.place), place.mark);
  live_ += place.sectors;
  peak_live_ = std::max(peak_live_, live_);
  ++counts_.logged;
  ++blocks_;
  return PagedBlock{place.address, place.sectors, place.stream, entry.place, table_.pages(), entry.known};
}

void PagePlacement::settle(const PagedBlock& block) {
  places_[block.known].is_live = false;
  places_.change(block.known);
  --unsettled_;
  --blocks_;
}

// Where homes move, what came back to its place lies elsewhere than the free runs have it.
void PagePlacement::carry_out_changes() const noexcept {
  std::sort(places_.changed().begin(), places_.changed().end(),
            [this](KnownPlaces::Number a, KnownPlaces::Number b) { return places_[a].came_at > places_[b].came_at; });
  if (some_homes_move()) {
    give_left_bytes(true);
    bring_homes();
  } else {
    give_left_bytes(false);
  }
  take_known_bytes();
  for (const KnownPlaces::Number number : places_.changed()) {
    KnownPlace& place = places_[number];
    const std::size_t room = place.is_live ? kRunsOfBlock : 0;
    free_.drop_room(place.room - room);
    place.room = static_cast<std::uint8_t>(room);
    place.is_changed = false;
    place.came_at = 0;
  }
  places_.changed().clear();
}

// Bytes that the free runs have as taken. No two such places share one.
void PagePlacement::give_left_bytes(bool of_live_ones) const noexcept {
  for (const KnownPlaces::Number number : places_.changed()) {
    KnownPlace& place = places_[number];
    if (!place.is_taken || (place.is_live && !of_live_ones)) continue;
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

// All bytes of such a handle are free here, for who covered it had them all: they are one run, of one stream.
void PagePlacement::bring_homes() const noexcept {
  for_each_new_home([this](PageTable::Handle handle, Sectors address, const KnownPlace& place) {
    const Sectors count = table_.sectors_of(handle);
    one_run_.clear();
    free_.take(table_.home_of(handle), count, one_run_);
    table_.move_home(handle, address);
    free_.give(address, count, place.stream);
    return true;
  });
}

// Of live blocks that the free runs have as free.
void PagePlacement::take_known_bytes() const noexcept {
  for (const KnownPlaces::Number number : places_.changed()) {
    KnownPlace& place = places_[number];
    if (place.is_taken || !place.is_live) continue;
    table_.for_each_piece(place.address, place.sectors, [&](Sectors home, Sectors length) {
      one_run_.clear();
      free_.take(home, length, one_run_);
      return true;
    });
    place.is_taken = true;
  }
}

}  // namespace cistern
