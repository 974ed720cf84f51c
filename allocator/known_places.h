#pragma once

// Places that blocks have had, with what became of them since the free runs were last brought up to date.
//
// A block that comes to a place of before, and goes again, leaves the free bytes as they were. So who takes such a
// place, or frees a block, notes it here alone, and the free runs and homes follow when somebody looks at them: each
// place that changed meanwhile once, however often it changed.
// Takes 64 bytes of host memory a place, 15 of the index and 8 of lists. Complexity: O(1) expected, but for `provide`,
// which is O(places) where it forgets some.
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <cstddef>
#include <cstdint>

#include "allocator/free_runs.h"
#include "allocator/growing_table.h"
#include "allocator/hash_index.h"
#include "allocator/page_size.h"
#include "allocator/placement_log.h"
#include "allocator/prefetch.h"

namespace cistern {

struct alignas(64) KnownPlace {
  Sectors address = 0;
  Sectors sectors = 0;
  PlacementLog::Key mark;
  // When a block came there last without the free runs being looked at; 0: not since.
  std::uint64_t came_at = 0;
  StreamNumber stream = 0;          // whose blocks come there
  std::uint32_t less = 0;           // sectors that its block has less than the log's place
  std::int32_t pages_then = 0;      // how many there were when its block came
  std::uint16_t size_class = 0;     // of CreationHarm
  std::uint8_t room = 0;            // for so many free runs is kept
  bool covers_handles : 1 = false;  // whole ones; unknown of a place without a name, where no block comes again
  // Of one that is taken: its bytes were at home there when they were taken from the free runs, and so they still are,
  // for before a home moves they are given back.
  bool is_at_home : 1 = false;
  bool is_live = false;
  bool is_taken = false;    // in the free runs: its bytes are not free there
  bool is_changed = false;  // in the list of these
  bool is_named = false;    // found by where it is
  // The mark after which its bytes became free, or another stream's, last.
  std::uint32_t left_at = 0;
};

class KnownPlaces {
 public:
  using Number = PlacementLog::Number;
  static constexpr Number kNone = PlacementLog::kNone;

  // So many `obtain`s and `add`s take no host memory from here on, and no `change` does. Where there is no room and
  // `most` places are known, or many more are than these, and many came since it was so last, those are forgotten that
  // no block has and that did not change. Throws std::bad_alloc, with all others as they were.
  void provide(std::size_t places, std::size_t most);
  // Addresses for about so many in all. Throws std::bad_alloc, unchanged.
  void expect(std::size_t places);
  // Whether `provide` would do nothing.
  [[nodiscard]] bool has_room(std::size_t places, std::size_t most) const noexcept;
  // Has the processor bring what `obtain` looks at first: where many places are known it lies in no cache.
  void fetch(Sectors address, Sectors sectors) const noexcept;
  void fetch(Number number) const noexcept { prefetch(&places_[number]); }
  // The place; a new one if it is not known. Requires: provide.
  [[nodiscard]] Number obtain(Sectors address, Sectors sectors) noexcept;
  // A place that nobody will look for: known by its number alone, until it changed and no block has it. Requires:
  // provide.
  [[nodiscard]] Number add(Sectors address, Sectors sectors) noexcept;
  // Somebody looked at what changed, and the place is to leave the list: without a name and a block it is given back.
  // Requires: then its bytes are free in the free runs.
  void looked_at(Number number) noexcept {
    KnownPlace& place = places_[number];
    place.is_changed = false;
    if (!place.is_named && !place.is_live) unused_.push_back(number);  // there is room
  }
  // Whether the number is that of the place, and not another's since; never without a name.
  [[nodiscard]] bool names(Number number, Sectors address, Sectors sectors) const {
    if (number >= places_.size()) return false;
    const KnownPlace& place = places_[number];
    return place.is_named && place.address == address && place.sectors == sectors;
  }
  [[nodiscard]] KnownPlace& operator[](Number number) { return places_[number]; }
  [[nodiscard]] const KnownPlace& operator[](Number number) const { return places_[number]; }

  // Puts the place into the list of those that changed.
  void change(Number number) noexcept {
    KnownPlace& place = places_[number];
    if (place.is_changed) return;
    place.is_changed = true;
    changed_.push_back(number);  // there is room
  }
  // May be put into another order.
  [[nodiscard]] GrowingList<Number>& changed() { return changed_; }
  [[nodiscard]] const GrowingList<Number>& changed() const { return changed_; }

  // Calls visit(place) for each that a block has.
  template <class Visit>
  void for_each_live(Visit&& visit) const {
    for (const KnownPlace& place : places_)
      if (place.is_live) visit(place);
  }

  [[nodiscard]] std::size_t size() const { return places_.size() - unused_.size(); }
  // Throws std::logic_error unless each place is found. O(n).
  void audit() const;

 private:
  // Many came since places were forgotten last.
  [[nodiscard]] bool is_due() const noexcept { return came_ >= places_.size() / 2; }
  [[nodiscard]] Number find(Sectors address, Sectors sectors) const {
    return index_.find(HashIndex::tag_of(address, sectors), [&](Number number) {
      return places_[number].address == address && places_[number].sectors == sectors;
    });
  }
  void make_room(std::size_t places);
  void name(Number number) noexcept;
  [[nodiscard]] Number take_number(Sectors address, Sectors sectors) noexcept;
  void forget_idle() noexcept;

  GrowingList<KnownPlace> places_;
  GrowingList<Number> unused_;
  HashIndex index_;
  GrowingList<Number> changed_;
  std::size_t came_ = 0;  // new ones, since some were forgotten
};

}  // namespace cistern
