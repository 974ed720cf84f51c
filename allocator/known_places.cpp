#include "allocator/known_places.h"

#include "allocator/prefetch.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace cistern {
namespace {

constexpr std::size_t kFirstPlaces = 512;
// A table that is larger than what is in it by so much lies in fewer caches than it could.
constexpr std::size_t kSparse = 16;

}  // namespace

bool KnownPlaces::has_room(std::size_t places, std::size_t most) const noexcept {
  const bool is_crowded = came_ >= places_.size() / 2 && size() >= 2 * most && changed_.empty();
  if (!unused_.empty()) prefetch(&places_[unused_.back()]);
  return room() >= places && !is_crowded;
}

void KnownPlaces::provide(std::size_t places, std::size_t most) {
  if (has_room(places, most)) return;
  if (size() >= most && changed_.empty()) forget_idle();
  std::size_t larger = std::max(kFirstPlaces, places_.size());
  const bool is_sparse = slots_.size() > kSparse * larger;
  if (room() >= places && 2 * room() >= size() && !is_sparse) return;  // it will take a while until the next time
  while (larger < places_.size() + places) larger *= 2;
  LargeTable<Slot> slots(std::bit_ceil(2 * larger));
  unused_.reserve(slots.size() / 2);
  changed_.reserve(slots.size() / 2);
  places_.reserve(slots.size() / 2);
  slots_.swap(slots);
  fill_slots();
}

void KnownPlaces::fetch(Sectors address, Sectors sectors) const noexcept {
  if (!slots_.empty()) prefetch(&slots_[hash_of(address, sectors) & (slots_.size() - 1)]);
}

KnownPlaces::Number KnownPlaces::obtain(Sectors address, Sectors sectors) noexcept {
  const std::size_t slot = slot_of(address, sectors);
  if (slots_[slot].number != kNone) return slots_[slot].number;
  ++came_;
  const Number number = take_number(address, sectors, true);
  slots_[slot] = {number, tag_of(hash_of(address, sectors))};
  return number;
}

KnownPlaces::Number KnownPlaces::add(Sectors address, Sectors sectors) noexcept {
  return take_number(address, sectors, false);
}

KnownPlaces::Number KnownPlaces::take_number(Sectors address, Sectors sectors, bool is_named) noexcept {
  auto number = static_cast<Number>(places_.size());
  if (unused_.empty()) {
    places_.emplace_back();  // there is room
  } else {
    number = unused_.back();
    unused_.pop_back();
  }
  KnownPlace& place = places_[number];
  place = {};
  place.address = address;
  place.sectors = sectors;
  place.is_named = is_named;
  return number;
}

// The slot of the place, or the empty one where it belongs.
std::size_t KnownPlaces::slot_of(Sectors address, Sectors sectors) const {
  const std::uint64_t hash = hash_of(address, sectors);
  const std::size_t last = slots_.size() - 1;
  for (std::size_t slot = hash & last;; slot = (slot + 1) & last) {
    const auto [number, tag] = slots_[slot];
    if (number == kNone) return slot;
    if (tag == tag_of(hash) && places_[number].address == address && places_[number].sectors == sectors) return slot;
  }
}

// Places without a block and without a change. The lowest numbers are used again first, so that after many there come
// to be none at the end.
void KnownPlaces::forget_idle() noexcept {
  const auto is_in_use = [](const KnownPlace& place) { return place.is_live || place.is_taken || place.is_changed; };
  while (!places_.empty() && !is_in_use(places_.back())) places_.pop_back();
  unused_.clear();
  for (std::size_t i = places_.size(); i-- > 0;) {
    if (is_in_use(places_[i])) continue;
    places_[i] = {};
    unused_.push_back(static_cast<Number>(i));  // there is room
  }
  came_ = 0;
  fill_slots();
}

void KnownPlaces::fill_slots() noexcept {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const KnownPlace& place = places_[i];
    if (place.is_named)
      slots_[slot_of(place.address, place.sectors)] = {static_cast<Number>(i),
                                                       tag_of(hash_of(place.address, place.sectors))};
  }
}

void KnownPlaces::audit() const {
  std::vector<bool> is_unused(places_.size());
  for (const Number number : unused_) is_unused[number] = true;
  if (std::count(is_unused.begin(), is_unused.end(), true) != static_cast<std::ptrdiff_t>(unused_.size()))
    throw std::logic_error("a place is given back twice");
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const KnownPlace& place = places_[i];
    if (is_unused[i] && (place.is_named || place.is_live || place.is_taken || place.is_changed))
      throw std::logic_error("a known place that is in use was given back");
    if (!is_unused[i] && !place.is_named && !place.is_live && !place.is_taken && !place.is_changed)
      throw std::logic_error("a place without a name is nobody's");
    if (place.is_named && slots_[slot_of(place.address, place.sectors)].number != i)
      throw std::logic_error("a known place is not found");
  }
}

}  // namespace cistern
