#pragma once

// IpcState: what one driver has exported to other processes, and what it has opened of theirs.
//
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/driver_api.h"
#include "runtime/simulated/export_table.h"
#include "runtime/simulated/ipc_handle.h"
#include "runtime/simulated/operation.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace cistern::simulated {

class IpcState {
 public:
  explicit IpcState(std::uint64_t driver) : driver_(driver) {}
  // Nothing that was exported is there any more; what others have mapped stays theirs.
  ~IpcState();
  IpcState(const IpcState&) = delete;
  IpcState& operator=(const IpcState&) = delete;

  // --- Exports ---
  // The handle of the allocation at `base`, the same until it is withdrawn; its place is for the
  // caller to fill in. CUDA_ERROR_OUT_OF_MEMORY if too much is exported.
  CUresult export_memory(CUdeviceptr base, IpcHandle* handle);
  // The allocation is freed: its handles open nothing any more.
  void withdraw(CUdeviceptr base) noexcept;
  // The slot that an event gets when it is first exported.
  CUresult export_event(const Event& event, IpcHandle* handle, std::shared_ptr<SharedEvent>* shared);
  // The event is destroyed here: if it was exported, others see it complete.
  void withdraw(Event& event) noexcept;

  // --- Imports ---
  // Another process's table, opened once; null if it is gone.
  [[nodiscard]] std::shared_ptr<ExportTable> open_table(const ExportTable::Address& address);
  [[nodiscard]] std::shared_ptr<SharedEvent> open_event(std::shared_ptr<ExportTable> table,
                                                        const IpcHandle& handle) const;
  // An allocation of another process, as it is mapped for one device.
  struct Mapping {
    IpcHandle handle;
    int device = 0;
    CUdeviceptr reserved = 0;  // whole granules around the allocation
    std::size_t reserved_bytes = 0;
    CUdeviceptr address = 0;
    std::uint64_t opened = 0;  // times
  };
  [[nodiscard]] Mapping* find_mapping(const IpcHandle& handle, int device);
  [[nodiscard]] Mapping* find_mapping(CUdeviceptr address);
  void add_mapping(const Mapping& mapping) { mappings_.emplace(mapping.address, mapping); }
  void remove_mapping(CUdeviceptr address) { mappings_.erase(address); }

 private:
  struct Export {
    std::uint32_t slot = 0;
    std::uint64_t serial = 0;
  };
  [[nodiscard]] ExportTable* own_table();

  const std::uint64_t driver_;
  std::shared_ptr<ExportTable> table_;  // from the first export on
  std::uint64_t next_serial_ = 1;
  std::map<CUdeviceptr, Export> memory_;
  std::vector<std::shared_ptr<SharedEvent>> events_;
  std::vector<std::weak_ptr<ExportTable>> foreign_tables_;
  std::map<CUdeviceptr, Mapping> mappings_;
};

}  // namespace cistern::simulated
