#pragma once

// RaceMemory: whose the bytes are, by address: the blocks that an allocator told of, and
// under them the allocations of the driver. Dead ones are remembered until their addresses
// are somebody else's, so that a report can say where they were freed.
// Not thread-safe: the driver holds its lock around every call.

#include <cistern/race_report.h>

#include "runtime/simulated/race_interval_map.h"
#include "runtime/simulated/race_operation.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cistern::simulated {

// One life of a block or an allocation.
struct RaceLifetime {
  const char* origin = "";  // "block", "cuMemAlloc", "mapping", …
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  int device = -1;  // of a block: the stream that it was allocated for
  CUstream stream = nullptr;
  std::uint64_t stream_id = 0;
  RaceStackId allocated = 0;
  RaceStackId freed = 0;
  std::uint64_t born = 0;  // sequence numbers of submission
  std::uint64_t died = 0;  // 0: live
  bool in_private_pool = false;
  bool is_of_host = false;          // a block of host memory: in no stream
  bool is_kept_for_graphs = false;  // handed out in a capture, or freed there by a private pool
  bool is_row = false;              // continues in the next: mappings side by side
  bool of_graph = false;            // of an allocation node: each launch makes it anew
  bool has_blocks = false;          // an allocator told of blocks in it: only they may be touched
  std::vector<std::pair<std::uint64_t, int>> recorded_streams;  // and their devices

  [[nodiscard]] bool is_live() const { return died == 0; }
  [[nodiscard]] std::uint64_t end() const { return address + bytes; }
};
using RaceLifetimePtr = std::shared_ptr<RaceLifetime>;

// What is wrong with an access, seen without any order.
struct RaceTrespass {
  RaceKind kind;
  std::uint64_t begin;
  std::uint64_t end;
  RaceLifetimePtr lifetime;  // may be null
};

class RaceMemory {
 public:
  using Lifetimes = RaceIntervalMap<RaceLifetimePtr>;

  // Begins a life; dead ones in the range are forgotten as far as they overlap.
  void begin_block(RaceLifetimePtr block);
  void begin_allocation(RaceLifetimePtr allocation);
  // The live one that begins at the address; null if there is none.
  [[nodiscard]] RaceLifetimePtr live_block(std::uint64_t address) const;
  [[nodiscard]] RaceLifetimePtr live_allocation(std::uint64_t address) const;
  // The one that holds the address, live or dead: the block if there is one, else the allocation.
  [[nodiscard]] RaceLifetimePtr find(std::uint64_t address) const;
  // Ends lives: of an allocation, and of the blocks in it.
  void end_block(RaceLifetime& block, RaceStackId stack, std::uint64_t sequence);
  void end_allocations(std::uint64_t begin, std::uint64_t end, RaceStackId stack, std::uint64_t sequence);
  // Blocks in a range that is the program's own memory again.
  void forget_blocks(std::uint64_t begin, std::uint64_t end) { blocks_.erase(begin, end); }
  // Forgets all about a range of addresses that the process may use for anything now.
  void forget(std::uint64_t begin, std::uint64_t end);

  // What is wrong with touching the range; nothing if it is one live block, allocation or row of
  // mappings, or memory that nobody told of.
  [[nodiscard]] std::optional<RaceTrespass> judge(std::uint64_t begin, std::uint64_t end) const;
  // The same for a graph's node that was captured at that sequence number. Blocks that are
  // kept for graphs may be freed, and handed out anew within captures: their pool sees to it.
  // A block from outside of captures may not be younger than the node.
  [[nodiscard]] std::optional<RaceTrespass> judge_node(std::uint64_t begin, std::uint64_t end,
                                                       std::uint64_t captured) const;

 private:
  [[nodiscard]] std::optional<RaceTrespass> judge_allocation(std::uint64_t begin, std::uint64_t end) const;

  Lifetimes blocks_;
  Lifetimes allocations_;
};

}  // namespace cistern::simulated
