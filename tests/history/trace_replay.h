#pragma once

// A device's history read forwards: what it says is there at its end.

#include <cistern/snapshot.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cistern {

struct TraceReplay {
  struct Block {
    std::int64_t requested = 0;
    bool pending = false;
  };
  std::map<std::uint64_t, std::int64_t> segments;  // bytes by address
  std::map<std::uint64_t, Block> blocks;           // allocated or pending, by address
  std::map<TraceAction, std::int64_t> counts;
  std::vector<std::string> faults;  // entries that cannot follow those before them

  explicit TraceReplay(const std::vector<TraceEntry>& trace);
  // What differs from the end that the snapshot shows for its first device; "" if nothing does.
  [[nodiscard]] std::string difference_from(const Snapshot& snapshot) const;

 private:
  void apply(const TraceEntry& entry);
  [[nodiscard]] bool is_inside_a_segment(std::uint64_t address, std::int64_t bytes) const;
  [[nodiscard]] bool overlaps_a_block(std::uint64_t address, std::int64_t bytes) const;
};

// "alloc 1000", one an entry.
[[nodiscard]] std::vector<std::string> actions_and_sizes(const std::vector<TraceEntry>& trace);

}  // namespace cistern
