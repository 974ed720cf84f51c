#pragma once

// Where each request was placed, by what was live then: the same request in the same state is placed there again.
//
// The state is a sum over all blocks that were not freed yet, so that an allocation and a free are one addition
// each, and equal sets of places are equal states however they came about. Of one state and stream several places
// may be known; none is overwritten while the ring has room, or repeated passes would alternate between two.
// Host memory: a ring of at most `capacity` entries, in which the oldest makes way; 24 bytes an entry, and its key.
// Complexity: O(1) expected, and O(64) for candidates. Not thread-safe: the heap's lock is held.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/page_size.h"

namespace cistern {

struct LoggedPlace {
  Sectors address = 0;
  Sectors sectors = 0;  // of the request that was placed there first
  friend bool operator==(const LoggedPlace&, const LoggedPlace&) = default;
};

class PlacementLog {
 public:
  using Key = std::uint64_t;

  explicit PlacementLog(std::size_t capacity) : capacity_(capacity) {}

  // A block is live at this place, or was freed: what the state is made of.
  void arrived(const LoggedPlace& place) { state_ += mark_of(place); }
  void left(const LoggedPlace& place) { state_ -= mark_of(place); }

  // What places are known under, now.
  [[nodiscard]] Key key_of(StreamNumber stream) const;
  // The places that were of a request as large or up to an eighth larger: the smallest first, then the oldest.
  // Replaces what is in `places`.
  void candidates(Key key, Sectors sectors, std::vector<LoggedPlace>& places) const;
  // Throws std::bad_alloc, unchanged.
  void append(Key key, const LoggedPlace& place);
  // All entries go; the state stays.
  void forget();
  // More entries than now; never fewer.
  void grow(std::size_t capacity);

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(next_ - oldest_); }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  // Throws std::logic_error unless each entry is in its chain, once and by age. O(n).
  void audit() const;

 private:
  // Entries are numbered in the order in which they came.
  using Number = std::uint64_t;
  static constexpr Number kNone = ~Number{0};

  struct Entry {
    Key key;
    LoggedPlace place;
    Number next;  // of the key; kNone: it is the newest
  };
  struct Chain {
    Number oldest;
    Number newest;
  };

  [[nodiscard]] static std::uint64_t mark_of(const LoggedPlace& place);
  [[nodiscard]] Entry& entry(Number number) { return ring_[static_cast<std::size_t>(number % ring_.size())]; }
  [[nodiscard]] const Entry& entry(Number number) const {
    return ring_[static_cast<std::size_t>(number % ring_.size())];
  }
  void drop_oldest();
  void enlarge_ring();

  std::size_t capacity_;
  std::uint64_t state_ = 0;
  std::vector<Entry> ring_;  // number modulo its size
  Number oldest_ = 0;
  Number next_ = 0;
  std::unordered_map<Key, Chain> chains_;
};

}  // namespace cistern
