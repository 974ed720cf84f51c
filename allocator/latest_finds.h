#pragma once

// LatestFinds: from a number to an object, as long as no other came since with the same remainder; read by any thread
// without a lock, and without a loop, while one changes it.
//
// Thread safety: find may be called from any thread at any time; the rest by one thread at a time. While a place
// changes, what comes there may be found by the key that goes, though never what goes by the key that comes. What is
// found must be storage that stays, which says whose it is. (The leaves of a PageDirectory say that for ever, so that
// it needs no keys.) O(1).

#include "stats/host_atomics.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern {

template <class Value, std::size_t kPlaces, class Processors = HostAtomics>
class LatestFinds {
 public:
  LatestFinds() = default;
  LatestFinds(const LatestFinds&) = delete;
  LatestFinds& operator=(const LatestFinds&) = delete;

  // Null: another came since, or none did, or it is just being changed. Requires: `key` is not 0.
  [[nodiscard, gnu::always_inline]] Value* find(std::uint64_t key) const noexcept {
    const Place& place = places_[key % kPlaces];
    return place.key.load(std::memory_order_acquire) == key ? place.value.load(std::memory_order_acquire) : nullptr;
  }
  void put(std::uint64_t key, Value* value) noexcept {
    Place& place = places_[key % kPlaces];
    place.value.store(value, std::memory_order_release);
    place.key.store(key, std::memory_order_release);
  }
  // Nothing, if the key is not there.
  void erase(std::uint64_t key) noexcept {
    Place& place = places_[key % kPlaces];
    if (place.key.load(std::memory_order_relaxed) == key) place.key.store(0, std::memory_order_relaxed);
  }

 private:
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;
  struct Place {
    Atomic<std::uint64_t> key{0};  // 0: none
    Atomic<Value*> value{nullptr};
  };

  std::array<Place, kPlaces> places_{};
};

}  // namespace cistern
