// Entries about other processes: legacy handles of memory and of events.
//
// "CUDA Driver API", section "Memory Management": cuIpcGetMemHandle, cuIpcOpenMemHandle,
// cuIpcCloseMemHandle, cuIpcGetEventHandle and cuIpcOpenEventHandle. What it leaves open is
// listed in docs/simulated-driver.md.

#include <sys/stat.h>

#include <bit>
#include <cstdio>
#include <utility>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/shared_event.h"

namespace cistern::simulated {
namespace {

// The device of this driver that another process means; -1 if it is not visible here.
int index_of_physical(const std::deque<SimulatedDevice>& devices, int physical) {
  for (std::size_t index = 0; index < devices.size(); ++index) {
    if (devices[index].physical == physical) return static_cast<int>(index);
  }
  return -1;
}

// The exporter's file that holds the memory; nothing if it is gone.
OwnedFile open_memory_file(const IpcHandle& handle) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%d", handle.process, handle.file);
  struct stat status {};
  if (::stat(path, &status) != 0) return {};
  return OwnedFile(open_file_of({handle.process, handle.started}, handle.file, status.st_ino));
}

}  // namespace

CUresult DriverState::ipc_get_mem_handle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  if (options.backing == Backing::none) return CUDA_ERROR_NOT_SUPPORTED;
  for (index = 0; index < device_count(); ++index) {
    // The handle names the whole allocation, whichever of its addresses is given.
    const auto allocation = device(index).memory.find(pointer);
    if (!allocation) continue;
    IpcHandle exported;
    if (const CUresult refused = ipc.export_memory(allocation->begin, &exported); refused != CUDA_SUCCESS) {
      return refused;
    }
    const FilePlace place = pages.place_of(allocation->begin);
    exported.file = place.file;
    exported.offset = place.offset;
    exported.bytes = allocation->bytes;
    exported.device = device(index).physical;
    *handle = std::bit_cast<CUipcMemHandle>(exported);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool DriverState::can_reach(int from, int to) { return from == to || peers.can_access(from, to); }

// cuIpcOpenMemHandle: "as if the user called cuCtxEnablePeerAccess". Enabled already is as good.
void DriverState::enable_lazily(int from, int to) {
  if (from != to) static_cast<void>(peers.enable(from, to));
}

CUresult DriverState::ipc_open_mem_handle(CUdeviceptr* pointer, CUipcMemHandle bytes, unsigned flags) {
  if (pointer == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const IpcHandle handle = read_ipc_handle(bytes);
  if (handle.kind != IpcHandle::kMemory || handle.bytes == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.process == this_process().id) return CUDA_ERROR_INVALID_CONTEXT;
  if (options.backing == Backing::none) return CUDA_ERROR_NOT_SUPPORTED;
  const int owner = index_of_physical(devices, handle.device);
  if (owner < 0 || !can_reach(index, owner)) return CUDA_ERROR_MAP_FAILED;
  if (IpcState::Mapping* opened = ipc.find_mapping(handle, index)) {
    ++opened->opened;
    enable_lazily(index, owner);
    *pointer = opened->address;
    return CUDA_SUCCESS;
  }
  // The file first: while the table has the memory, it is the file that the handle means.
  OwnedFile file = open_memory_file(handle);
  const auto table = ipc.open_table(handle.table_address());
  if (!file || !table || !table->has_memory(handle.slot, handle.serial)) return CUDA_ERROR_MAP_FAILED;
  IpcState::Mapping mapping{.handle = handle, .device = index};
  if (const CUresult failed = map_foreign(owner, std::move(file), &mapping); failed != CUDA_SUCCESS) return failed;
  enable_lazily(index, owner);
  *pointer = mapping.address;
  return CUDA_SUCCESS;
}

// Maps the granules around the allocation, as a device's page tables would; all or nothing.
CUresult DriverState::map_foreign(int owner, OwnedFile file, IpcState::Mapping* mapping) {
  const IpcHandle& handle = mapping->handle;
  const std::uint64_t begin = round_down(handle.offset, kGranule);
  const std::size_t bytes = round_up(handle.offset + handle.bytes, kGranule) - begin;
  CUdeviceptr address = 0;
  if (virtual_memory.reserve(&address, bytes, 0, 0, 0) != CUDA_SUCCESS) return CUDA_ERROR_MAP_FAILED;
  const CUmemGenericAllocationHandle physical = virtual_memory.adopt(owner, bytes, std::move(file), begin);
  CUresult result = virtual_memory.map(address, bytes, 0, physical, 0);
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, mapping->device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (result == CUDA_SUCCESS) {
    result = virtual_memory.set_access(address, bytes, &access, 1);
    if (result != CUDA_SUCCESS) static_cast<void>(virtual_memory.unmap(address, bytes));
  }
  static_cast<void>(virtual_memory.release(physical));  // the mapping keeps it
  if (result != CUDA_SUCCESS) {
    static_cast<void>(virtual_memory.free_reservation(address, bytes));
    return CUDA_ERROR_MAP_FAILED;
  }
  mapping->reserved = address;
  mapping->reserved_bytes = bytes;
  mapping->address = address + (handle.offset - begin);
  mapping->opened = 1;
  ipc.add_mapping(*mapping);
  return CUDA_SUCCESS;
}

CUresult DriverState::ipc_close_mem_handle(CUdeviceptr pointer) {
  Lock lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  IpcState::Mapping* mapping = ipc.find_mapping(pointer);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (mapping->opened > 1) {
    --mapping->opened;
    return CUDA_SUCCESS;
  }
  // Unmapping waits for what may use the memory; meanwhile another thread may open or close it.
  if (const CUresult failed = wait_for_device(lock, mapping->device); failed != CUDA_SUCCESS) return failed;
  // Another device's work, which nothing waited for, must not lose what it touches right now.
  const auto is_free = [&] {
    mapping = ipc.find_mapping(pointer);
    return mapping == nullptr || !virtual_memory.is_held(mapping->reserved, mapping->reserved_bytes);
  };
  hold_released.wait(lock, is_free);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--mapping->opened != 0) return CUDA_SUCCESS;
  const CUdeviceptr reserved = mapping->reserved;
  const std::size_t bytes = mapping->reserved_bytes;
  if (virtual_memory.unmap(reserved, bytes) != CUDA_SUCCESS) {
    ++mapping->opened;
    return CUDA_ERROR_MAP_FAILED;
  }
  ipc.remove_mapping(pointer);
  return virtual_memory.free_reservation(reserved, bytes);
}

CUresult DriverState::ipc_get_event_handle(CUipcEventHandle* handle, CUevent event_handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  Event* event = nullptr;
  if (const CUresult refused = find_event(event_handle, &event); refused != CUDA_SUCCESS) return refused;
  constexpr unsigned needed = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  if ((event->flags & needed) != needed || event->imported) return CUDA_ERROR_INVALID_HANDLE;
  IpcHandle exported;
  std::shared_ptr<SharedEvent> shared;
  if (const CUresult refused = ipc.export_event(*event, &exported, &shared); refused != CUDA_SUCCESS) return refused;
  if (event->shared == nullptr) executor.share(*event, shared);
  exported.device = device(event->device).physical;
  *handle = std::bit_cast<CUipcEventHandle>(exported);
  return CUDA_SUCCESS;
}

CUresult DriverState::ipc_open_event_handle(CUevent* event_handle, CUipcEventHandle bytes) {
  if (event_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const IpcHandle handle = read_ipc_handle(bytes);
  if (handle.kind != IpcHandle::kEvent) return CUDA_ERROR_INVALID_HANDLE;
  if (handle.process == this_process().id) return CUDA_ERROR_INVALID_CONTEXT;
  auto table = ipc.open_table(handle.table_address());
  if (!table || !table->has_event(handle.slot, handle.serial)) return CUDA_ERROR_MAP_FAILED;
  auto shared = ipc.open_event(std::move(table), handle);
  Event* event = nullptr;
  *event_handle = reinterpret_cast<CUevent>(events.insert(&event));
  event->device = index;
  event->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  event->imported = true;
  executor.share(*event, std::move(shared));
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
