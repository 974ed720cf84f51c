#pragma once

// HostSource: where memory of the host comes from, and goes back to. Page-locked: the driver's own (cuMemHostAlloc), or
// plain memory whose pages threads bring in and the driver then locks (cuMemHostRegister), near the device that asks.
// Managed: cuMemAllocManaged.
//
// Thread safety: any member may be called from any thread; a device's context must be current. Results are the
// driver's, unchecked: a refusal is a value. May block the host.

#include "runtime/context.h"
#include "runtime/driver_api.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace cistern {

enum class HostMemoryKind { pinned, managed };

// Of page-locked memory.
struct HostSourceOptions {
  bool registers = false;            // plain memory, which the driver locks
  std::size_t register_threads = 1;  // that bring its pages in
};

class HostSource {
 public:
  HostSource(const Contexts& contexts, HostMemoryKind kind);

  // Memory for all devices' contexts, in whole pages. `failed` is the entry that refused; a device without managed
  // memory is CUDA_ERROR_NOT_SUPPORTED. Throws std::bad_alloc, with nothing allocated.
  [[nodiscard]] CUresult allocate(std::size_t bytes, int device, const HostSourceOptions& options,
                                  std::uint64_t* address, DriverEntryId* failed);
  // Gives a piece back as it came; refused, it is as it was.
  [[nodiscard]] CUresult release(std::uint64_t address, std::size_t bytes, DriverEntryId* failed) noexcept;

 private:
  [[nodiscard]] CUresult allocate_managed(std::size_t bytes, int device, std::uint64_t* address);
  [[nodiscard]] CUresult allocate_registered(std::size_t bytes, std::size_t threads, std::optional<int> node,
                                             std::uint64_t* address, DriverEntryId* failed);
  [[nodiscard]] std::optional<int> node_of(int device);
  [[nodiscard]] bool is_registered(std::uint64_t address) noexcept;

  const DriverApi& api_;
  const HostMemoryKind kind_;
  std::vector<CUdevice> devices_;
  std::mutex mutex_;                              // guards what follows
  std::vector<std::optional<int>> nodes_;         // of the devices that were asked for already
  std::vector<bool> is_node_known_;               // of each device
  std::unordered_set<std::uint64_t> registered_;  // pieces of ours that the driver locked
};

}  // namespace cistern
