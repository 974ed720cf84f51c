#pragma once

// GraphMemory: what graphs allocate. "CUDA C++ Programming Guide", "Graph Memory Nodes"; "CUDA Driver
// API", "Graph Management", cuGraphAddMemAllocNode and cuGraphAddMemFreeNode.
//
// An allocation has its address from the moment that its node is captured. It is its callers' from a
// launch to the call that frees it (if the graph itself does not), and its operations' from the
// turn of the one node to the turn of what frees it.
// Each device has one stock of memory for all graphs: a launch takes what it lacks from graphs
// that are not in its way, then from the device, and nothing goes back before it is trimmed.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/driver_api.h"
#include "runtime/simulated/graph_arena.h"
#include "runtime/simulated/memory_access.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

namespace cistern::simulated {

// What an allocation node makes at each launch. Its nodes share it, and so do the executable
// graph and what runs.
struct GraphAllocation {
  enum class FreeNode : std::uint8_t { none, in_its_graph, in_another };

  std::uint64_t address = 0;
  std::size_t bytes = 0;
  CUgraph graph = nullptr;    // its owner
  std::uint64_t id = 0;       // never used again
  std::uint64_t readers = 0;  // a bit a device
  std::uint64_t writers = 0;
  std::shared_ptr<GraphArena> arena;
  FreeNode free_node = FreeNode::none;
  bool is_live = false;  // for callers: launched, and not freed
  Target allocated{};    // the latest launch's node

  [[nodiscard]] bool is_freed_by_its_graph() const { return free_node == FreeNode::in_its_graph; }
};
using GraphAllocationPtr = std::shared_ptr<GraphAllocation>;

class GraphMemory {
 public:
  using Arenas = std::vector<std::shared_ptr<GraphArena>>;
  using Preceding = std::unordered_set<std::uint64_t>;

  explicit GraphMemory(std::vector<DeviceMemory*> devices) : devices_(std::move(devices)), stocks_(devices_.size()) {}

  // --- Capture ---
  [[nodiscard]] std::shared_ptr<GraphArena> make_arena(int device);
  // Null, unchanged, if there are no addresses left. `precedes`: see GraphArena::place.
  [[nodiscard]] GraphAllocationPtr add(GraphAllocation allocation, const std::function<bool(CUgraphNode)>& precedes);

  // --- Look-up: null if there is none ---
  // The allocation that begins at the address: the one captured last.
  [[nodiscard]] GraphAllocationPtr find(std::uint64_t address) const;
  [[nodiscard]] GraphAllocationPtr find_around(std::uint64_t address, std::size_t bytes = 1) const;
  // As MemoryPools::may_touch. A caller may name what no launch has made yet: a capture has to.
  [[nodiscard]] bool may_touch(const Touch& touch, Moment moment) const;

  // --- Launches ---
  // Gives the arenas the memory that they lack, for work that comes after `preceding`. False if there
  // is not enough on some device: then they have what they had, and others' stock may have grown.
  [[nodiscard]] bool provide(const Arenas& arenas, const Preceding& preceding);
  // An allocation that outlives its launch is its callers', until it is withdrawn from them.
  void make_live(const GraphAllocationPtr& allocation);
  void withdraw(GraphAllocation& allocation);

  // --- For operations ---
  void allocation_ran(const GraphAllocationPtr& allocation) { resident_[allocation->address] = allocation; }
  void free_ran(const GraphAllocation& allocation);

  // --- A device's stock ---
  // Gives back what no graph uses that runs or is to run, and no live allocation.
  void trim(int device);
  [[nodiscard]] std::uint64_t used(int device) const { return stock(device).mapped; }
  [[nodiscard]] std::uint64_t most_used(int device) const { return stock(device).most_mapped; }
  [[nodiscard]] std::uint64_t reserved(int device) const { return stock(device).mapped + stock(device).idle; }
  [[nodiscard]] std::uint64_t most_reserved(int device) const { return stock(device).most_reserved; }
  void reset_most_used(int device) { stock(device).most_mapped = used(device); }
  void reset_most_reserved(int device) { stock(device).most_reserved = reserved(device); }
  // Lets go of what destroyed graphs had. Before any of these figures is read.
  void collect();

 private:
  struct Stock {
    std::size_t mapped = 0;  // at some graph's addresses
    std::size_t idle = 0;
    std::size_t most_mapped = 0;
    std::size_t most_reserved = 0;
  };
  [[nodiscard]] Stock& stock(int device) { return stocks_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] const Stock& stock(int device) const { return stocks_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] DeviceMemory& memory(int device) { return *devices_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] bool provide(int device, std::size_t bytes, const Arenas& wanting, const Preceding& preceding);
  // Calls visit(arena, address, chunk) for the chunks on the device with memory that nothing uses, or
  // nothing but what comes before.
  template <class Visit>
  void for_each_unused(int device, const Preceding& preceding, Visit&& visit);
  void take_memory_from(GraphArena& arena, std::uint64_t address, GraphArena::Chunk& chunk);
  void note_peaks(Stock& stock);

  std::vector<DeviceMemory*> devices_;
  std::vector<Stock> stocks_;
  Arenas arenas_;
  std::map<std::uint64_t, std::weak_ptr<GraphAllocation>> latest_;  // by address, as captured
  std::map<std::uint64_t, GraphAllocationPtr> live_;                // by address: the callers'
  std::map<std::uint64_t, GraphAllocationPtr> resident_;            // by address: the operations'
  std::uint64_t next_id_ = 1;
};

}  // namespace cistern::simulated
