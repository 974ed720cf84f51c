// What the histories of all devices keep, which changes on all or on none.

#include "allocator/device_heaps.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {

std::vector<DeviceHeaps::HistoryChange> DeviceHeaps::prepare_history(const HistoryOptions& options) {
  std::vector<HistoryChange> changes;
  for_each([&](DeviceAllocator& heap) { changes.push_back({&heap, options, heap.prepare_history(options)}); });
  return changes;
}

void DeviceHeaps::apply(std::vector<HistoryChange>& changes, HistoryOptions&& options) noexcept {
  for (HistoryChange& change : changes) change.heap->record_history(std::move(change.options), std::move(change.ring));
  const bool off = options.enabled == HistoryEnabled::none;
  const std::size_t entries = options.enabled == HistoryEnabled::all ? options.max_entries : 1;
  annotations_.set_capacity(off ? 0 : entries, off || options.clear_history);
  const bool is_unlimited = options.enabled == HistoryEnabled::all && entries == kUnlimitedEntries;
  settings_.trace_alloc_max_entries = is_unlimited ? -1 : static_cast<std::int64_t>(off ? 0 : entries);
  history_options_ = std::move(options);
  history_options_.clear_history = false;
}

void DeviceHeaps::record_history(const HistoryOptions& options) {
  require_valid(options);
  const std::lock_guard lock(mutex_);
  HistoryOptions kept = options;
  std::vector<HistoryChange> changes = prepare_history(options);
  apply(changes, std::move(kept));
}

HistoryOptions DeviceHeaps::history_options() const {
  const std::lock_guard lock(mutex_);
  return history_options_;
}

// All devices have room for it before any uses it.
void DeviceHeaps::set_user_metadata(std::string_view text) {
  SharedText shared = share_text(text);
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<DeviceAllocator*, TextId>> prepared;
  prepared.reserve(heaps_.size());
  try {
    for_each([&](DeviceAllocator& heap) { prepared.emplace_back(&heap, heap.prepare_history_text(shared)); });
  } catch (...) {
    for (const auto& [heap, id] : prepared) heap->drop_history_text(id);
    throw;
  }
  for (const auto& [heap, id] : prepared) heap->use_history_text(id);
  user_metadata_ = std::move(shared);
}

std::string DeviceHeaps::user_metadata() const {
  const std::lock_guard lock(mutex_);
  return user_metadata_ == nullptr ? std::string() : *user_metadata_;
}

void DeviceHeaps::annotate(void* pointer, std::string_view text) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const SharedText shared = share_text(text);
  if (!find_owner(address, [&](DeviceAllocator& heap) { return heap.annotate(address, shared); }))
    throw InvalidArgument(fmt::format("annotate({}): expected the start of a live block", pointer));
}

void DeviceHeaps::mark_range(std::string_view name, bool is_start, int device) {
  contexts_.require(device);
  annotations_.add(name, is_start, device);
}

HistoryInfo DeviceHeaps::history_info(int device) const {
  const DeviceAllocator* heap = existing(device);
  return heap == nullptr ? HistoryInfo{} : heap->history_info();
}

}  // namespace cistern
