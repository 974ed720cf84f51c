#pragma once

// GraphArena: the addresses that the allocation nodes of one graph have on one device, and which of
// them have memory.
//
// An address is an allocation's for good, but in one graph two allocations have the same ones
// where the second comes after the first one's free. Memory comes in whole granules (chunks), at a
// launch, and other graphs may get it afterwards: "CUDA C++ Programming Guide", "Graph Memory
// Nodes", "Address Reuse Within a Graph" and "Physical Memory Management and Sharing".
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/device_memory.h"
#include "runtime/simulated/free_ranges.h"
#include "runtime/simulated/operation.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace cistern::simulated {

class GraphArena {
 public:
  struct Chunk {
    std::size_t bytes = 0;
    bool has_memory = false;
    std::size_t bound = 0;  // allocations here that outlive the launch which made them
  };
  using Chunks = std::map<std::uint64_t, Chunk>;  // by address

  GraphArena(int device, DeviceMemory& memory) : device_(device), memory_(&memory) {}

  // Addresses for an allocation node: the lowest that were freed by nodes of which `precedes` says that
  // they come before it, else new ones. Nothing, unchanged, if the device has no more.
  [[nodiscard]] std::optional<std::uint64_t> place(std::size_t bytes, const std::function<bool(CUgraphNode)>& precedes);
  // A free node of the same graph: its allocation's addresses may serve what comes after it.
  void freed_by(CUgraphNode node, std::uint64_t address, std::size_t bytes);
  // Gives all addresses back. Requires: no chunk has memory.
  void give_back_addresses();

  // An allocation that no node of its graph frees lives from a launch to its free.
  void bind(std::uint64_t address, std::size_t bytes);
  void unbind(std::uint64_t address, std::size_t bytes);

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] Chunks& chunks() noexcept { return chunks_; }
  [[nodiscard]] bool is_launched() const noexcept {
    return launched.operation != nullptr && launched.operation->id == launched.id;
  }

  Target launched{};  // the latest launch's end

 private:
  // What one free node gave back.
  struct Span {
    std::size_t bytes = 0;
    CUgraphNode freed_by = nullptr;
  };
  [[nodiscard]] std::optional<std::uint64_t> take_freed(std::size_t bytes,
                                                        const std::function<bool(CUgraphNode)>& precedes);
  void cut(std::uint64_t address, std::size_t bytes);
  void count_bound(std::uint64_t address, std::size_t bytes, bool more);

  int device_;
  DeviceMemory* memory_;
  Chunks chunks_;
  FreeRanges unused_;
  std::map<std::uint64_t, Span> freed_;
};

}  // namespace cistern::simulated
