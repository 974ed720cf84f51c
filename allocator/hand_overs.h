#pragma once

// How known places came from other streams: in which pieces, whose each was. Where the log has a place that came so,
// it has the number of a record of these instead of the place's.
//
// Records stay until all are forgotten, with the log; equal ones are one.
// Complexity: O(1) expected, and O(pieces) to compare. Not thread-safe: the heap's lock is held.

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/known_places.h"
#include "allocator/placement_log.h"

namespace cistern {

class HandOvers {
 public:
  using Number = PlacementLog::Number;
  static constexpr Number kNone = PlacementLog::kNone;

  struct Record {
    KnownPlaces::Number place = KnownPlaces::kNone;
    std::vector<FreeRun> pieces;  // of all of the place, at its own addresses, by address
    friend bool operator==(const Record&, const Record&) = default;
  };

  // The record's number, which no place has; none where there are too many. Throws std::bad_alloc, unchanged.
  [[nodiscard]] Number note(Record record);
  // Null: it is not that of a record. Until the next note.
  [[nodiscard]] const Record* find(Number number) const {
    const auto index = static_cast<std::size_t>(number - kFirst);
    return number >= kFirst && index < records_.size() ? &records_[index] : nullptr;
  }
  void forget() noexcept {
    records_.clear();
    of_place_.clear();
  }
  [[nodiscard]] std::size_t size() const { return records_.size(); }

 private:
  static constexpr Number kFirst = Number{1} << 31;
  static constexpr std::size_t kMost = std::size_t{1} << 16;

  std::vector<Record> records_;
  std::unordered_multimap<KnownPlaces::Number, Number> of_place_;
};

}  // namespace cistern
