#pragma once

// PoolMemory: the memory that one stream-ordered pool holds of its device, and which parts of it
// an allocation may reuse.
//
// The device gives whole granules (chunks). A part that was freed in stream order belongs to
// that stream at once; to others once they are ordered behind the free, once it has run, or when
// they are made to wait for it. The last lies with the caller: the free's operation is in `behind`.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/device_memory.h"
#include "runtime/simulated/free_ranges.h"
#include "runtime/simulated/operation.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_set>

namespace cistern::simulated {

// CU_MEMPOOL_ATTR_REUSE_*
struct ReuseRules {
  bool follow_event_dependencies = true;
  bool allow_opportunistic = true;
  bool allow_internal_dependencies = true;
};

class PoolMemory {
 public:
  explicit PoolMemory(DeviceMemory& device) : device_(&device) {}

  struct Request {
    std::size_t bytes = 0;
    std::uint64_t stream = 0;  // its number
    ReuseRules rules = {};
    std::size_t most_reserved = 0;
    // The operations that what the stream takes now comes after, by their ids: asked once at most.
    std::function<std::unordered_set<std::uint64_t>()> preceding = {};
  };
  struct Taken {
    std::uint64_t address = 0;
    Targets behind = {};  // frees that the allocation has to wait for
  };
  // Nothing, unchanged, if neither pool nor device have so much.
  [[nodiscard]] std::optional<Taken> take(const Request& request);
  // A free in stream order, under a number of its own. `operation` is the free.
  std::uint64_t give_back(std::uint64_t address, std::size_t bytes, std::uint64_t stream, Target operation);
  // The free's turn has come.
  void free_ran(std::uint64_t number) { frees_.at(number).ran = true; }
  // No work uses it any more.
  void give_back_now(std::uint64_t address, std::size_t bytes) { settled_.give_back(address, rounded(bytes)); }

  // What was freed and has run is anybody's from now on.
  void settle();
  // Gives chunks back to the device that nobody uses, while at least `bytes` stay reserved.
  void trim_to(std::size_t bytes);

  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_; }
  [[nodiscard]] std::size_t most_reserved() const noexcept { return most_reserved_; }
  void reset_most_reserved() noexcept { most_reserved_ = reserved_; }
  [[nodiscard]] static std::size_t rounded(std::size_t bytes) { return round_up(bytes, kAllocationAlignment); }

 private:
  struct Free {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::uint64_t stream = 0;
    Target operation{};
    bool ran = false;
  };
  // A part of what one free gave back, not yet anybody's.
  struct Piece {
    std::size_t bytes = 0;
    std::uint64_t free = 0;
  };
  using Pieces = std::map<std::uint64_t, Piece>;

  [[nodiscard]] std::optional<std::uint64_t> take_of_stream(std::size_t bytes, std::uint64_t stream);
  // The lowest run of neighbouring pieces, each of which `usable` takes.
  [[nodiscard]] std::optional<std::uint64_t> take_pieces(std::size_t bytes,
                                                         const std::function<bool(const Free&)>& usable);
  [[nodiscard]] bool grow(std::size_t bytes, std::size_t most_reserved);
  // Takes [address, address + bytes) out of the pieces; the frees whose parts they were.
  Targets cut(std::uint64_t address, std::size_t bytes);

  DeviceMemory* device_;
  std::map<std::uint64_t, std::size_t> chunks_;
  FreeRanges settled_;                             // anybody's
  std::map<std::uint64_t, FreeRanges> of_stream_;  // the pieces again, by the stream that freed them
  Pieces pieces_;
  std::map<std::uint64_t, Free> frees_;
  std::uint64_t next_free_ = 1;
  std::size_t reserved_ = 0;
  std::size_t most_reserved_ = 0;
};

}  // namespace cistern::simulated
