#pragma once

// The free bytes of handles at home, as maximal runs of one stream: found by address and by size.
//
// Invariant: runs do not overlap, and those of one stream do not touch.
// Complexity: O(log n) a run touched. Not thread-safe: the heap's lock is held.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "allocator/page_size.h"

namespace cistern {

using StreamNumber = std::int32_t;

struct FreeRun {
  Sectors address = 0;
  Sectors sectors = 0;
  StreamNumber stream = 0;

  [[nodiscard]] Sectors end() const { return address + sectors; }
  friend bool operator==(const FreeRun&, const FreeRun&) = default;
};

class FreeRuns {
 public:
  using BySize = std::set<std::pair<Sectors, Sectors>>;  // size, address

  // Requires: none of it is free.
  void give(Sectors address, Sectors count, StreamNumber stream);
  // Requires: is_free. Adds to `taken` what was taken, in pieces of one stream each.
  void take(Sectors address, Sectors count, std::vector<FreeRun>& taken);
  // Whether all of it is free, on whatever stream.
  [[nodiscard]] bool is_free(Sectors address, Sectors count) const;

  // The run of the stream that ends there.
  [[nodiscard]] std::optional<FreeRun> ending_at(Sectors end, StreamNumber stream) const;
  // The stream's runs, by size and then address.
  [[nodiscard]] const BySize& of(StreamNumber stream) const;
  // Calls visit(FreeRun) for each run, by address.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [address, tail] : runs_) visit(FreeRun{address, tail.sectors, tail.stream});
  }
  [[nodiscard]] Sectors sectors() const { return sectors_; }

  // Throws std::logic_error where the invariant does not hold. O(n log n).
  void audit() const;

 private:
  struct Tail {
    Sectors sectors;
    StreamNumber stream;
  };
  using ByAddress = std::map<Sectors, Tail>;

  void add(const FreeRun& run);
  ByAddress::iterator remove(ByAddress::iterator run);
  [[nodiscard]] ByAddress::const_iterator holding(Sectors address) const;

  ByAddress runs_;
  std::vector<BySize> by_size_;  // a stream
  Sectors sectors_ = 0;
};

}  // namespace cistern
