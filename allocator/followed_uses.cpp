#include "allocator/followed_uses.h"

namespace cistern {

// Those behind it up to the next free place move up, unless they would come before their home.
void FollowedUses::erase(Used* used) noexcept {
  auto hole = static_cast<std::size_t>(used - used_.get());
  for (std::size_t place = next(hole); used_[place].address != 0; place = next(place)) {
    const std::size_t from_home = (place - home_of(used_[place].address)) & mask_;
    if (from_home < ((place - hole) & mask_)) continue;
    used_[hole] = std::move(used_[place]);
    hole = place;
  }
  used_[hole] = {};
  --size_;
}

void FollowedUses::grow() {
  const std::size_t old_places = places();
  const std::size_t new_places = old_places == 0 ? kFirstPlaces : 2 * old_places;
  const std::unique_ptr<Used[]> old = std::exchange(used_, std::make_unique<Used[]>(new_places));
  mask_ = new_places - 1;
  size_ = 0;
  for (std::size_t place = 0; place < old_places; ++place)
    if (old[place].address != 0) add(old[place].address, old[place].bytes, std::move(old[place].uses));
}

}  // namespace cistern
