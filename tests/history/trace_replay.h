#pragma once

// A device's history read forwards: what it says is there at its end.

#include <cistern/snapshot.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cistern {

struct TraceReplay {
  struct Block {
    std::int64_t requested = 0;
    bool pending = false;
  };
  // Of an expandable segment: pages that follow each other, of one stream and pool.
  struct Mapped {
    std::int64_t bytes = 0;
    std::int64_t stream = 0;
    std::pair<std::int64_t, std::int64_t> pool_id;
    friend bool operator==(const Mapped&, const Mapped&) = default;
  };
  std::map<std::uint64_t, std::int64_t> segments;  // bytes by address
  std::map<std::uint64_t, Mapped> mapped;          // by address
  std::map<std::uint64_t, Block> blocks;           // allocated or pending, by address
  std::map<TraceAction, std::int64_t> counts;
  std::vector<std::string> faults;  // entries that cannot follow those before them

  explicit TraceReplay(const std::vector<TraceEntry>& trace);
  // What differs from the end that the snapshot shows for its first device; "" if nothing does.
  [[nodiscard]] std::string difference_from(const Snapshot& snapshot) const;

 private:
  void apply(const TraceEntry& entry);
  // Return what is wrong with it, or null.
  [[nodiscard]] const char* map(const TraceEntry& entry);
  [[nodiscard]] const char* unmap(const TraceEntry& entry);
  [[nodiscard]] bool is_inside_a_segment(std::uint64_t address, std::int64_t bytes) const;
  [[nodiscard]] bool overlaps_a_block(std::uint64_t address, std::int64_t bytes) const;
};

// "alloc 1000", one an entry.
[[nodiscard]] std::vector<std::string> actions_and_sizes(const std::vector<TraceEntry>& trace);

}  // namespace cistern
