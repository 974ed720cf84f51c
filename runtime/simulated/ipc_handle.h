#pragma once

// IpcHandle: the 64 bytes of the simulated driver's CUipcMemHandle and CUipcEventHandle.
//
// It names the exporting process and the table of its driver's exports, which tells whether what
// was exported is still there; for memory also the file and the place in it that holds the bytes.

#include "runtime/driver_api.h"
#include "runtime/simulated/export_table.h"

#include <bit>
#include <cstdint>
#include <type_traits>

namespace cistern::simulated {

struct IpcHandle {
  static constexpr std::uint32_t kMemory = 0x4d434953;
  static constexpr std::uint32_t kEvent = 0x45434953;

  std::uint32_t kind = 0;
  std::uint32_t process = 0;
  std::uint64_t started = 0;
  std::uint64_t table_inode = 0;
  std::int32_t table = -1;
  std::uint32_t slot = 0;
  std::uint64_t serial = 0;
  std::int32_t file = -1;
  std::int32_t device = 0;  // its number before CUDA_VISIBLE_DEVICES
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] bool operator==(const IpcHandle&) const noexcept = default;
  [[nodiscard]] ExportTable::Address table_address() const { return {{process, started}, table, table_inode}; }
};
static_assert(sizeof(IpcHandle) == CU_IPC_HANDLE_SIZE && std::is_trivially_copyable_v<IpcHandle>);
static_assert(sizeof(CUipcMemHandle) == sizeof(IpcHandle) && sizeof(CUipcEventHandle) == sizeof(IpcHandle));

[[nodiscard]] inline IpcHandle make_ipc_handle(std::uint32_t kind, const ExportTable& table, std::uint32_t slot,
                                               std::uint64_t serial) {
  const ExportTable::Address& address = table.address();
  IpcHandle handle;
  handle.kind = kind;
  handle.process = address.process.id;
  handle.started = address.process.started;
  handle.table_inode = address.inode;
  handle.table = address.file;
  handle.slot = slot;
  handle.serial = serial;
  return handle;
}

template <class DriverHandle>
[[nodiscard]] IpcHandle read_ipc_handle(const DriverHandle& bytes) {
  return std::bit_cast<IpcHandle>(bytes);
}

}  // namespace cistern::simulated
