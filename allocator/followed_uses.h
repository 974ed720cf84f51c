#pragma once

// FollowedUses: what other streams use of the blocks that a stream hands out while it follows steps, by address: there
// is no block to note it with (Recurrence).
//
// A hash table with linear probing, at most half full; what goes leaves no mark, for those behind it move up. O(1)
// expected, no allocation once grown; to visit all and to grow O(places).
// Not thread-safe: guarded by the stream's lock.

#include "allocator/block.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cistern {

class FollowedUses {
 public:
  struct Used {
    std::uint64_t address = 0;  // 0: the place is free
    std::size_t bytes = 0;
    StreamUses uses;
  };

  // Room for one more. Throws std::bad_alloc, unchanged.
  void make_room() {
    if (2 * (size_ + 1) > places()) grow();
  }
  // Requires: room, and that it is not there; an address other than 0.
  void add(std::uint64_t address, std::size_t bytes, StreamUses&& uses) noexcept {
    std::size_t place = home_of(address);
    while (used_[place].address != 0) place = next(place);
    used_[place] = {address, bytes, std::move(uses)};
    ++size_;
  }
  // Until the next is added or taken; null: it is not there.
  [[nodiscard]] Used* find(std::uint64_t address) noexcept {
    if (size_ == 0) return nullptr;
    for (std::size_t place = home_of(address); used_[place].address != 0; place = next(place))
      if (used_[place].address == address) return &used_[place];
    return nullptr;
  }
  // What `find` returned goes.
  void erase(Used* used) noexcept;
  // Calls visit(Used&) for each, and forgets them.
  template <class Visit>
  void take_all(Visit&& visit) noexcept {
    for (std::size_t place = 0; size_ != 0; ++place) {
      if (used_[place].address == 0) continue;
      visit(used_[place]);
      used_[place] = {};
      --size_;
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kFirstPlaces = 16;

  [[nodiscard]] std::size_t places() const noexcept { return used_ == nullptr ? 0 : mask_ + 1; }
  [[nodiscard]] std::size_t next(std::size_t place) const noexcept { return (place + 1) & mask_; }
  // Addresses are multiples of 512: the multiplication carries their bits to the top.
  [[nodiscard]] std::size_t home_of(std::uint64_t address) const noexcept {
    return (address >> 9) * 0x9E3779B97F4A7C15ULL >> 32 & mask_;
  }
  void grow();

  std::unique_ptr<Used[]> used_;
  std::size_t mask_ = 0;  // their count, a power of two, less one
  std::size_t size_ = 0;
};

}  // namespace cistern
