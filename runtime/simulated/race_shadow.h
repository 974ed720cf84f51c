#pragma once

// RaceShadow: for every byte, which operations touched it last, as far as later ones can
// still conflict with them.
//
// Bytes are named by where they are kept, not by the address that was used: two mappings of
// one physical handle are the same bytes. An access is dropped when a later one that comes
// after it does not let a conflict go unseen: a write covers what it comes after, a read
// covers the reads that it comes after. What conflicts with the dropped one then conflicts
// with the one that covered it.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/race_interval_map.h"
#include "runtime/simulated/race_operation.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace cistern::simulated {

struct RaceAccess {
  RaceOperationPtr operation;
  bool writes = false;
  std::uint64_t displacement = 0;  // what was added to the place for the address that was used (modulo 2^64)
  friend bool operator==(const RaceAccess& a, const RaceAccess& b) {
    return a.operation == b.operation && a.writes == b.writes && a.displacement == b.displacement;
  }
};

class RaceShadow {
 public:
  // Called with the access that conflicts, and the bytes.
  using Conflict = std::function<void(const RaceAccess& earlier, std::uint64_t begin, std::uint64_t end)>;

  // Notes the access, after telling each earlier one that is in no order with it and of which
  // one writes.
  void access(std::uint64_t begin, std::uint64_t end, const RaceAccess& access, const Conflict& conflict);
  // Calls `visit` for every access that is kept of the range.
  void for_each(std::uint64_t begin, std::uint64_t end, const Conflict& visit) const;
  // Forgets the accesses that `dead` says so of.
  void remove_if(std::uint64_t begin, std::uint64_t end, const std::function<bool(const RaceAccess&)>& dead);
  // Forgets the range: its bytes are another object's from now on.
  void clear(std::uint64_t begin, std::uint64_t end) { accesses_.erase(begin, end); }
  [[nodiscard]] std::size_t pieces() const noexcept { return accesses_.size(); }

 private:
  using Accesses = std::vector<RaceAccess>;
  void fill_gaps(std::uint64_t begin, std::uint64_t end);
  void merge(std::uint64_t begin, std::uint64_t end);

  RaceIntervalMap<Accesses> accesses_;
};

}  // namespace cistern::simulated
