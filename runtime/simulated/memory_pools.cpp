#include "runtime/simulated/memory_pools.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace cistern::simulated {
namespace {

// The one that holds [address, address + bytes), or nullptr.
const PoolAllocation* find_in(const std::map<std::uint64_t, PoolAllocation>& allocations, std::uint64_t address,
                              std::size_t bytes) {
  const auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const PoolAllocation& allocation = std::prev(after)->second;
  const std::uint64_t head = address - allocation.address;
  return head < allocation.bytes && bytes <= allocation.bytes - head ? &allocation : nullptr;
}

}  // namespace

MemoryPools::MemoryPools(std::vector<DeviceMemory*> devices, std::uint16_t driver)
    : devices_(std::move(devices)), pools_(HandleKind::pool, driver, HandleReuse::never) {
  for (int device = 0; device < static_cast<int>(devices_.size()); ++device) {
    defaults_.push_back(create(device, 0, CU_MEM_HANDLE_TYPE_NONE));
  }
  current_ = defaults_;
}

CUmemoryPool MemoryPools::create(int device, std::size_t max_bytes, CUmemAllocationHandleType handle_types) {
  auto pool = std::make_unique<MemoryPool>();
  pool->device = device;
  pool->max_bytes = max_bytes == 0 ? std::numeric_limits<std::size_t>::max() : max_bytes;
  pool->handle_types = handle_types;
  pool->readers = pool->writers = std::uint64_t{1} << device;
  pool->memory.emplace(*devices_[static_cast<std::size_t>(device)]);
  all_.reserve(all_.size() + 1);
  std::unique_ptr<MemoryPool>* place = nullptr;
  const std::uint64_t handle = pools_.insert(&place);
  *place = std::move(pool);
  all_.push_back(reinterpret_cast<CUmemoryPool>(handle));
  return all_.back();
}

MemoryPool* MemoryPools::find(CUmemoryPool pool) const {
  const auto* found = pools_.find(reinterpret_cast<std::uint64_t>(pool));
  return found == nullptr || (*found)->destroyed ? nullptr : found->get();
}

void MemoryPools::destroy(CUmemoryPool pool) {
  at(pool).destroyed = true;
  for (std::size_t device = 0; device < current_.size(); ++device) {
    if (current_[device] == pool) current_[device] = defaults_[device];
  }
  if (at(pool).outstanding == 0) gone(pool);
}

void MemoryPools::gone(CUmemoryPool pool) {
  at(pool).memory->settle();
  at(pool).memory->trim_to(0);
  all_.erase(std::find(all_.begin(), all_.end(), pool));
  pools_.at(reinterpret_cast<std::uint64_t>(pool)).reset();
  pools_.erase(reinterpret_cast<std::uint64_t>(pool));
}

std::optional<PoolMemory::Taken> MemoryPools::allocate(CUmemoryPool handle, PoolMemory::Request request) {
  MemoryPool& pool = at(handle);
  request.rules = pool.rules;
  request.most_reserved = pool.max_bytes;
  const auto taken = pool.memory->take(request);
  if (!taken) return std::nullopt;
  named_[taken->address] = PoolAllocation{taken->address, request.bytes, handle, next_id_++};
  pool.used += PoolMemory::rounded(request.bytes);
  pool.most_used = std::max(pool.most_used, pool.used);
  ++pool.outstanding;
  return taken;
}

const PoolAllocation* MemoryPools::find_allocation(std::uint64_t address) const {
  const auto found = named_.find(address);
  return found == named_.end() ? nullptr : &found->second;
}

const PoolAllocation* MemoryPools::find_around(std::uint64_t address, std::size_t bytes) const {
  return find_in(named_, address, bytes);
}

PoolAllocation MemoryPools::withdraw(std::uint64_t address) {
  const auto found = named_.find(address);
  PoolAllocation allocation = found->second;
  named_.erase(found);
  at(allocation.pool).used -= PoolMemory::rounded(allocation.bytes);
  return allocation;
}

std::uint64_t MemoryPools::queue_free(const PoolAllocation& allocation, std::uint64_t stream, Target operation) {
  return at(allocation.pool).memory->give_back(allocation.address, allocation.bytes, stream, operation);
}

void MemoryPools::free_now(const PoolAllocation& allocation) {
  resident_.erase(allocation.address);
  MemoryPool& pool = at(allocation.pool);
  pool.memory->give_back_now(allocation.address, allocation.bytes);
  if (--pool.outstanding == 0 && pool.destroyed) gone(allocation.pool);
}

void MemoryPools::allocation_ran(const PoolAllocation& allocation) { resident_[allocation.address] = allocation; }

void MemoryPools::free_ran(const PoolAllocation& allocation, std::uint64_t free_number) {
  resident_.erase(allocation.address);
  MemoryPool& pool = at(allocation.pool);
  pool.memory->free_ran(free_number);
  if (--pool.outstanding == 0 && pool.destroyed) gone(allocation.pool);
}

bool MemoryPools::may_touch(const Touch& touch, Moment moment) const {
  const PoolAllocation* allocation = find_in(moment == Moment::call ? named_ : resident_, touch.address, touch.bytes);
  if (allocation == nullptr) return false;
  const MemoryPool& pool = at(allocation->pool);
  return touch.by == Toucher::copy_engine || ((touch.write ? pool.writers : pool.readers) >> touch.device & 1) != 0;
}

void MemoryPools::host_waited() {
  for (const CUmemoryPool handle : all_) {
    MemoryPool& pool = at(handle);
    if (pool.memory->reserved() == 0) continue;
    pool.memory->settle();
    pool.memory->trim_to(pool.release_threshold);
  }
}

}  // namespace cistern::simulated
