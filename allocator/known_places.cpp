#include "allocator/known_places.h"

#include "allocator/prefetch.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace cistern {

bool KnownPlaces::has_room(std::size_t places, std::size_t most) const noexcept {
  const bool is_crowded = size() >= 2 * most && is_due();
  if (!unused_.empty()) prefetch(&places_[unused_.back()]);
  const std::size_t room = std::min({places_.room(), unused_.room(), changed_.room()}) - places_.size();
  return room + unused_.size() >= places && index_.has_room(places) && !is_crowded;
}

void KnownPlaces::provide(std::size_t places, std::size_t most) {
  if (has_room(places, most)) return;
  if (size() >= most && is_due()) forget_idle();
  make_room(places_.size() + places);
  index_.provide(places);
}

void KnownPlaces::expect(std::size_t places) {
  places_.expect(places);
  changed_.expect(places);
  unused_.expect(places);
  index_.expect(places);
}

// Each may be in one of the lists.
void KnownPlaces::make_room(std::size_t places) {
  places_.provide(places);
  changed_.provide(places);
  unused_.provide(places);
}

void KnownPlaces::fetch(Sectors address, Sectors sectors) const noexcept {
  index_.fetch(HashIndex::tag_of(address, sectors));
}

KnownPlaces::Number KnownPlaces::obtain(Sectors address, Sectors sectors) noexcept {
  if (const Number known = find(address, sectors); known != kNone) return known;
  ++came_;
  const Number number = take_number(address, sectors);
  name(number);
  return number;
}

KnownPlaces::Number KnownPlaces::add(Sectors address, Sectors sectors) noexcept {
  return take_number(address, sectors);
}

KnownPlaces::Number KnownPlaces::take_number(Sectors address, Sectors sectors) noexcept {
  auto number = static_cast<Number>(places_.size());
  if (unused_.empty()) {
    places_.provide(places_.size() + 1);  // there is room
    places_.push_back({});
  } else {
    number = unused_.back();
    unused_.pop_back();
  }
  KnownPlace& place = places_[number];
  place = {};
  place.address = address;
  place.sectors = sectors;
  return number;
}

// A place that the index cannot have is one without a name.
void KnownPlaces::name(Number number) noexcept {
  KnownPlace& place = places_[number];
  place.is_named = index_.add(HashIndex::tag_of(place.address, place.sectors), number);
}

// Places without a block and without a change. The lowest numbers are used again first, so that after many there come
// to be none at the end.
void KnownPlaces::forget_idle() noexcept {
  const auto is_in_use = [](const KnownPlace& place) { return place.is_live || place.is_taken || place.is_changed; };
  while (!places_.empty() && !is_in_use(places_.back())) places_.pop_back();
  unused_.clear();
  index_.clear();
  for (std::size_t i = places_.size(); i-- > 0;) {
    const auto number = static_cast<Number>(i);
    if (is_in_use(places_[i])) {
      if (places_[i].is_named) name(number);
      continue;
    }
    places_[i] = {};
    unused_.push_back(number);  // there is room
  }
  came_ = 0;
}

void KnownPlaces::audit() const {
  std::vector<bool> is_unused(places_.size());
  for (const Number number : unused_) is_unused[number] = true;
  if (std::count(is_unused.begin(), is_unused.end(), true) != static_cast<std::ptrdiff_t>(unused_.size()))
    throw std::logic_error("a place is given back twice");
  std::size_t named = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const KnownPlace& place = places_[i];
    named += place.is_named ? 1 : 0;
    if (is_unused[i] && (place.is_named || place.is_live || place.is_taken || place.is_changed))
      throw std::logic_error("a known place that is in use was given back");
    if (!is_unused[i] && !place.is_named && !place.is_live && !place.is_taken && !place.is_changed)
      throw std::logic_error("a place without a name is nobody's");
    if (place.is_named && find(place.address, place.sectors) != i) throw std::logic_error("a known place is not found");
  }
  index_.audit();
  if (index_.size() != named) throw std::logic_error("a place is found that has no name");
}

}  // namespace cistern
