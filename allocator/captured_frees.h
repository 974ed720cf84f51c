#pragma once

// Frees of a capture whose blocks may serve later requests of the same capture (the option
// graph_capture_record_stream_reuse): each with the nodes that stood last, when it was freed, on
// its own stream and on all that used it. All uses are those nodes or before them, so a request whose
// stream comes after all of them may have the block.
// Complexity: O(frees that wait in captures, and their nodes), of which there are few; to add one O(1).
// Not thread-safe: the owning DeviceAllocator holds its lock around every call.

#include "allocator/block.h"
#include "runtime/driver_api.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cistern {

// Where a captured stream is: what its next node depends on.
struct CapturePoint {
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> nodes;
};

class CapturedFrees {
 public:
  [[nodiscard]] bool empty() const { return frees_.empty(); }
  // The block was freed behind the nodes. Throws std::bad_alloc, unchanged.
  void add(Block* block, CapturePoint behind) { frees_.push_back({block, std::move(behind)}); }
  void forget(const Block* block) noexcept {
    std::erase_if(frees_, [block](const Free& free) { return free.block == block; });
  }
  // Whether a block of the stream waits in that capture.
  [[nodiscard]] bool has(std::uint64_t stream_id, cuuint64_t capture) const {
    return std::any_of(frees_.begin(), frees_.end(), [&](const Free& free) { return is_of(free, stream_id, capture); });
  }
  // Takes out a block of the stream all of whose nodes are in `preceding`; nullptr if there is none.
  [[nodiscard]] Block* take(std::uint64_t stream_id, cuuint64_t capture,
                            const std::unordered_set<CUgraphNode>& preceding) noexcept {
    const auto place = std::find_if(frees_.begin(), frees_.end(), [&](const Free& free) {
      return is_of(free, stream_id, capture) &&
             std::all_of(free.behind.nodes.begin(), free.behind.nodes.end(),
                         [&](CUgraphNode node) { return preceding.count(node) != 0; });
    });
    if (place == frees_.end()) return nullptr;
    Block* block = place->block;
    frees_.erase(place);
    return block;
  }

 private:
  struct Free {
    Block* block = nullptr;
    CapturePoint behind;
  };
  [[nodiscard]] static bool is_of(const Free& free, std::uint64_t stream_id, cuuint64_t capture) {
    return free.block->segment->stream.id == stream_id && free.behind.capture == capture;
  }

  std::vector<Free> frees_;  // in the order of the frees
};

}  // namespace cistern
