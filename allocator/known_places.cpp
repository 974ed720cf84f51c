#include "allocator/known_places.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace cistern {
namespace {

constexpr std::size_t kFirstPlaces = 512;

}  // namespace

void KnownPlaces::provide(std::size_t places, std::size_t most) {
  if (room() >= places) return;
  if (size() >= most && changed_.empty()) forget_idle();
  if (room() >= places && 2 * room() >= size()) return;  // it will take a while until the next time
  std::size_t larger = std::max(kFirstPlaces, places_.size());
  while (larger < places_.size() + places) larger *= 2;
  std::vector<Slot> slots(std::bit_ceil(2 * larger));
  unused_.reserve(slots.size() / 2);
  changed_.reserve(slots.size() / 2);
  places_.reserve(slots.size() / 2);
  slots_.swap(slots);
  fill_slots();
}

void KnownPlaces::fetch(Sectors address, Sectors sectors) const noexcept {
  if (!slots_.empty()) __builtin_prefetch(&slots_[hash_of(address, sectors) & (slots_.size() - 1)], 1);
}

KnownPlaces::Number KnownPlaces::obtain(Sectors address, Sectors sectors) noexcept {
  const std::size_t slot = slot_of(address, sectors);
  if (slots_[slot].number != kNone) return slots_[slot].number;
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
  slots_[slot] = {number, tag_of(hash_of(address, sectors))};
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

// Places without a block and without a change.
void KnownPlaces::forget_idle() noexcept {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    KnownPlace& place = places_[i];
    if (place.sectors == 0 || place.is_live || place.is_taken || place.is_changed) continue;
    place = {};
    unused_.push_back(static_cast<Number>(i));  // there is room
  }
  fill_slots();
}

void KnownPlaces::fill_slots() noexcept {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const KnownPlace& place = places_[i];
    if (place.sectors != 0)
      slots_[slot_of(place.address, place.sectors)] = {static_cast<Number>(i),
                                                       tag_of(hash_of(place.address, place.sectors))};
  }
}

void KnownPlaces::audit() const {
  std::size_t known = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const KnownPlace& place = places_[i];
    if (place.sectors == 0) continue;
    ++known;
    if (slots_[slot_of(place.address, place.sectors)].number != i) throw std::logic_error("a known place is not found");
  }
  if (known != size()) throw std::logic_error("the count of known places is not their number");
}

}  // namespace cistern
