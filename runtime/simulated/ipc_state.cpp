#include "runtime/simulated/ipc_state.h"

#include <algorithm>
#include <utility>

#include "runtime/simulated/shared_event.h"

namespace cistern::simulated {

IpcState::~IpcState() {
  for (const auto& [base, exported] : memory_) table_->remove_memory(exported.slot);
  for (const auto& event : events_) table_->remove_event(event->slot());
}

ExportTable* IpcState::own_table() {
  if (!table_) table_ = ExportTable::create();
  return table_.get();
}

// --- Exports ----------------------------------------------------------------------------

CUresult IpcState::export_memory(CUdeviceptr base, IpcHandle* handle) {
  ExportTable* table = own_table();
  if (table == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  auto found = memory_.find(base);
  if (found == memory_.end()) {
    const std::uint64_t serial = next_serial_++;
    const std::uint32_t slot = table->add_memory(serial);
    if (slot == ExportTable::kNone) return CUDA_ERROR_OUT_OF_MEMORY;
    found = memory_.emplace(base, Export{slot, serial}).first;
  }
  *handle = make_ipc_handle(IpcHandle::kMemory, *table, found->second.slot, found->second.serial);
  return CUDA_SUCCESS;
}

void IpcState::withdraw(CUdeviceptr base) noexcept {
  const auto found = memory_.find(base);
  if (found == memory_.end()) return;
  table_->remove_memory(found->second.slot);
  memory_.erase(found);
}

CUresult IpcState::export_event(const Event& event, IpcHandle* handle, std::shared_ptr<SharedEvent>* shared) {
  ExportTable* table = own_table();
  if (table == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *shared = event.shared;
  if (*shared == nullptr) {
    events_.reserve(events_.size() + 1);
    const std::uint64_t serial = next_serial_++;
    const std::uint32_t slot = table->add_event(serial);
    if (slot == ExportTable::kNone) return CUDA_ERROR_OUT_OF_MEMORY;
    *shared = std::make_shared<SharedEvent>(table_, slot, serial, driver_);
    events_.push_back(*shared);
  }
  *handle = make_ipc_handle(IpcHandle::kEvent, *table, (*shared)->slot(), (*shared)->serial());
  return CUDA_SUCCESS;
}

void IpcState::withdraw(Event& event) noexcept {
  const auto exported = std::find(events_.begin(), events_.end(), event.shared);
  if (event.shared && exported != events_.end()) {
    table_->remove_event(event.shared->slot());
    events_.erase(exported);
  }
  event.shared = nullptr;
}

// --- Imports ----------------------------------------------------------------------------

std::shared_ptr<ExportTable> IpcState::open_table(const ExportTable::Address& address) {
  std::erase_if(foreign_tables_, [](const auto& table) { return table.expired(); });
  for (const auto& weak : foreign_tables_) {
    const auto table = weak.lock();
    if (!table || table->address().process != address.process || table->address().inode != address.inode) continue;
    return is_alive(address.process) ? table : nullptr;
  }
  auto table = ExportTable::open(address);
  if (table) foreign_tables_.push_back(table);
  return table;
}

std::shared_ptr<SharedEvent> IpcState::open_event(std::shared_ptr<ExportTable> table, const IpcHandle& handle) const {
  return std::make_shared<SharedEvent>(std::move(table), handle.slot, handle.serial, driver_);
}

IpcState::Mapping* IpcState::find_mapping(const IpcHandle& handle, int device) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const auto& entry) {
    return entry.second.handle == handle && entry.second.device == device;
  });
  return found == mappings_.end() ? nullptr : &found->second;
}

IpcState::Mapping* IpcState::find_mapping(CUdeviceptr address) {
  const auto found = mappings_.find(address);
  return found == mappings_.end() ? nullptr : &found->second;
}

}  // namespace cistern::simulated
