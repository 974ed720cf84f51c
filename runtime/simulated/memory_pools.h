#pragma once

// MemoryPools: the stream-ordered pools of all devices and what was allocated from them.
//
// An allocation is its callers' from the call that makes it to the call that frees it, and its
// operations' from the turn of the one to the turn of the other: two may have the same address, one
// behind the other in stream order.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/driver_api.h"
#include "runtime/simulated/device_memory.h"
#include "runtime/simulated/handle_table.h"
#include "runtime/simulated/pool_memory.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace cistern::simulated {

struct MemoryPool {
  int device = 0;
  std::size_t max_bytes = 0;
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  bool destroyed = false;
  ReuseRules rules = {};
  std::uint64_t release_threshold = 0;
  std::uint64_t readers = 0;  // a bit a device
  std::uint64_t writers = 0;
  std::size_t used = 0;
  std::size_t most_used = 0;
  std::size_t outstanding = 0;  // allocations, until their frees have run
  std::optional<PoolMemory> memory = {};
};

struct PoolAllocation {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  CUmemoryPool pool = nullptr;
  std::uint64_t id = 0;  // never used again
  Target allocated{};    // the operation that makes it
};

class MemoryPools {
 public:
  // Each device has a default pool, which is current at first.
  MemoryPools(std::vector<DeviceMemory*> devices, std::uint16_t driver);

  [[nodiscard]] CUmemoryPool default_of(int device) const { return defaults_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] CUmemoryPool current_of(int device) const { return current_[static_cast<std::size_t>(device)]; }
  void set_current(int device, CUmemoryPool pool) { current_[static_cast<std::size_t>(device)] = pool; }
  [[nodiscard]] CUmemoryPool create(int device, std::size_t max_bytes, CUmemAllocationHandleType handle_types);
  // Its memory goes when the last allocation is gone. Requires: no default pool.
  void destroy(CUmemoryPool pool);
  // nullptr if there is none, or it was destroyed.
  [[nodiscard]] MemoryPool* find(CUmemoryPool pool) const;

  // For callers. `request.bytes` is what is asked for; nothing, unchanged, if it is not to be had.
  [[nodiscard]] std::optional<PoolMemory::Taken> allocate(CUmemoryPool pool, PoolMemory::Request request);
  void set_operation(std::uint64_t address, Target operation) { named_.at(address).allocated = operation; }
  // The caller's allocation that begins at, or that holds, an address.
  [[nodiscard]] const PoolAllocation* find_allocation(std::uint64_t address) const;
  [[nodiscard]] const PoolAllocation* find_around(std::uint64_t address, std::size_t bytes = 1) const;
  // Takes it from its callers. Requires: it begins there.
  PoolAllocation withdraw(std::uint64_t address);
  // The withdrawn allocation's free is `operation`, on a stream. Returns the free's number in its pool.
  std::uint64_t queue_free(const PoolAllocation& allocation, std::uint64_t stream, Target operation);
  // The withdrawn allocation is free now: nothing uses it.
  void free_now(const PoolAllocation& allocation);

  // For operations.
  void allocation_ran(const PoolAllocation& allocation);
  void free_ran(const PoolAllocation& allocation, std::uint64_t free_number);

  // Whether the range lies in one allocation that `device` may touch as a kernel does, or, as
  // copies do, whoever may: as callers, or as operations see it.
  [[nodiscard]] bool may_touch(const Touch& touch, Moment moment) const;
  // The host has waited: what was freed is anybody's, and pools give back what they hold too much.
  void host_waited();

 private:
  [[nodiscard]] MemoryPool& at(CUmemoryPool pool) const { return *pools_.at(reinterpret_cast<std::uint64_t>(pool)); }
  void gone(CUmemoryPool pool);

  std::vector<DeviceMemory*> devices_;
  HandleTable<std::unique_ptr<MemoryPool>> pools_;
  std::vector<CUmemoryPool> defaults_;
  std::vector<CUmemoryPool> current_;
  std::vector<CUmemoryPool> all_;
  std::map<std::uint64_t, PoolAllocation> named_;     // by address: the callers'
  std::map<std::uint64_t, PoolAllocation> resident_;  // by address: the operations'
  std::uint64_t next_id_ = 1;
};

}  // namespace cistern::simulated
