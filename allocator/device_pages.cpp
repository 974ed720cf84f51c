#include "allocator/device_pages.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {
namespace {

template <class Element>
void make_room(std::vector<Element>& elements, std::size_t count) {
  if (elements.capacity() < count) elements.reserve(std::max(count, 2 * elements.capacity()));
}

}  // namespace

// The driver's part of one gather, which remembers the first refusal.
class DevicePages::Calls final : public PageDriver {
 public:
  Calls(DevicePages& pages, const Gather& gather, const std::vector<CUdevice>& peers, bool shareable)
      : pages_(pages), gather_(gather), peers_(peers), shareable_(shareable) {}

  bool create(PageTable::Handle handle, std::int32_t pages) override {
    if (!succeeded(pages_.create(handle, pages, shareable_), DriverEntryId::mem_create)) return false;
    created_ += pages;
    return true;
  }
  bool map(PageTable::Handle handle, Sectors place) override {
    return succeeded(pages_.api_.mem_map(pages_.address_at(place), bytes_at(place), 0, pages_.handle_of(handle), 0),
                     DriverEntryId::mem_map);
  }
  bool allow(Sectors place, std::int64_t pages) override {
    const std::size_t bytes = pages_.bytes_of(pages);
    return succeeded(pages_.source_.allow_all({pages_.address_at(place), bytes, bytes}, peers_),
                     DriverEntryId::mem_set_access);
  }
  void release(PageTable::Handle handle) override { pages_.release(handle); }
  void unmap(PageTable::Handle /*handle*/, Sectors place) override {
    const std::uint64_t address = pages_.address_at(place);
    const std::size_t bytes = bytes_at(place);
    if (pages_.api_.mem_unmap(address, bytes) != CUDA_SUCCESS) pages_.keep_stray(address, bytes);
  }
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

 private:
  bool succeeded(CUresult result, DriverEntryId call) {
    if (result != CUDA_SUCCESS) outcome_ = {result, call, created_};
    return result == CUDA_SUCCESS;
  }
  // The gather's steps tile its addresses in order.
  [[nodiscard]] std::size_t bytes_at(Sectors place) const {
    const auto step = std::lower_bound(gather_.steps.begin(), gather_.steps.end(), place,
                                       [](const Gather::Step& one, Sectors at) { return one.address < at; });
    return pages_.bytes_of(step->pages);
  }

  DevicePages& pages_;
  const Gather& gather_;
  const std::vector<CUdevice>& peers_;
  const bool shareable_;
  std::int64_t created_ = 0;
  Outcome outcome_;
};

std::uint64_t DevicePages::address_of(PageTable::Arena arena) const {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(arena);
  return index < arenas_.size() ? arenas_[index] : 0;
}

std::uint64_t DevicePages::address_at(Sectors place) const {
  const PageTable::Arena arena = PageTable::arena_of(place);
  return address_of(arena) + static_cast<std::uint64_t>((place - PageTable::begin_of(arena)) * kSectorBytes);
}

CUmemGenericAllocationHandle DevicePages::handle_of(PageTable::Handle handle) const {
  const std::lock_guard lock(mutex_);
  return handles_[static_cast<std::size_t>(handle)];
}

DevicePages::Outcome DevicePages::carry_out(const Gather& gather, const std::vector<CUdevice>& peers, bool shareable) {
  if (has_debts()) static_cast<void>(settle_debts());
  const std::size_t steps = gather.steps.size();
  try {
    const std::lock_guard lock(mutex_);
    make_room(strays_, strays_.size() + steps_under_way_ + steps);
    steps_under_way_ += steps;
  } catch (const std::bad_alloc&) {  // as the driver says when the host has none left for it
    return {CUDA_ERROR_OUT_OF_MEMORY, DriverEntryId::mem_map};
  }
  Outcome outcome{reserve(PageTable::arena_of(gather.address)), DriverEntryId::mem_address_reserve};
  if (outcome.result == CUDA_SUCCESS) {
    Calls calls(*this, gather, peers, shareable);
    if (!cistern::carry_out(gather, calls)) outcome = calls.outcome();
  }
  const std::lock_guard lock(mutex_);
  steps_under_way_ -= steps;
  return outcome;
}

// Of two threads that reserve for one arena at once, the first one's reservation counts.
CUresult DevicePages::reserve(PageTable::Arena arena) {
  if (address_of(arena) != 0) return CUDA_SUCCESS;
  const auto index = static_cast<std::size_t>(arena);
  try {
    const std::lock_guard lock(mutex_);
    if (arenas_.size() <= index) arenas_.resize(index + 1);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::uint64_t address = 0;
  if (const CUresult result = source_.reserve(arena_bytes_, &address); result != CUDA_SUCCESS) return result;
  {
    const std::lock_guard lock(mutex_);
    if (arenas_[index] == 0) std::swap(arenas_[index], address);
  }
  // Nothing keeps it: what the driver refuses here are addresses, of which there are plenty.
  if (address != 0) static_cast<void>(source_.free(address, arena_bytes_));
  return CUDA_SUCCESS;
}

CUresult DevicePages::create(PageTable::Handle handle, std::int32_t pages, bool shareable) {
  const auto index = static_cast<std::size_t>(handle);
  try {
    const std::lock_guard lock(mutex_);
    if (handles_.size() <= index) handles_.resize(index + 1);
    make_room(unreleased_, unreleased_.size() + handles_.size());
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUmemAllocationProp properties = source_.properties(shareable);
  CUmemGenericAllocationHandle created = 0;
  const CUresult result = api_.mem_create(&created, bytes_of(pages), &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  handles_[index] = created;
  return CUDA_SUCCESS;
}

DevicePages::Outcome DevicePages::unmap(Sectors place, std::int32_t pages) {
  return {api_.mem_unmap(address_at(place), bytes_of(pages)), DriverEntryId::mem_unmap};
}

void DevicePages::release(PageTable::Handle handle) noexcept {
  CUmemGenericAllocationHandle released = 0;
  {
    const std::lock_guard lock(mutex_);
    released = std::exchange(handles_[static_cast<std::size_t>(handle)], 0);
  }
  release_now(released);
}

void DevicePages::release_now(CUmemGenericAllocationHandle handle) noexcept {
  if (api_.mem_release(handle) == CUDA_SUCCESS) return;
  const std::lock_guard lock(mutex_);
  unreleased_.push_back(handle);  // there is room
}

void DevicePages::keep_stray(std::uint64_t address, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  strays_.push_back({address, bytes});  // there is room
}

CUresult DevicePages::allow(Sectors place, std::int64_t pages, CUdevice peer) const {
  const std::size_t bytes = bytes_of(pages);
  return source_.allow({address_at(place), bytes, bytes}, peer);
}

DevicePages::Outcome DevicePages::free_arena(PageTable::Arena arena) {
  const std::uint64_t address = address_of(arena);
  if (address == 0) return {};
  const Outcome outcome{source_.free(address, arena_bytes_), DriverEntryId::mem_address_free};
  if (outcome.result != CUDA_SUCCESS) return outcome;
  const std::lock_guard lock(mutex_);
  arenas_[static_cast<std::size_t>(arena)] = 0;
  return outcome;
}

bool DevicePages::has_debts() const noexcept {
  const std::lock_guard lock(mutex_);
  return !strays_.empty() || !unreleased_.empty();
}

// One at a time, each as often as there were debts at the beginning: what is refused again goes to the end. The
// mappings first, since they keep the memory of what is released.
DevicePages::Outcome DevicePages::settle_debts() noexcept {
  Outcome refusal;
  std::unique_lock lock(mutex_);
  for (std::size_t left = strays_.size(); left != 0 && !strays_.empty(); --left) {
    const Stray stray = strays_.front();
    strays_.erase(strays_.begin());
    ++steps_under_way_;
    lock.unlock();
    const CUresult result = api_.mem_unmap(stray.address, stray.bytes);
    lock.lock();
    --steps_under_way_;
    if (result == CUDA_SUCCESS) continue;
    strays_.push_back(stray);
    if (refusal.result == CUDA_SUCCESS) refusal = {result, DriverEntryId::mem_unmap};
  }
  for (std::size_t left = unreleased_.size(); left != 0 && !unreleased_.empty(); --left) {
    const CUmemGenericAllocationHandle handle = unreleased_.front();
    unreleased_.erase(unreleased_.begin());
    lock.unlock();
    const CUresult result = api_.mem_release(handle);
    lock.lock();
    if (result == CUDA_SUCCESS) continue;
    unreleased_.push_back(handle);
    if (refusal.result == CUDA_SUCCESS) refusal = {result, DriverEntryId::mem_release};
  }
  return refusal;
}

}  // namespace cistern
