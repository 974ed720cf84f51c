#include "allocator/private_pools.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <atomic>

namespace cistern {
namespace {

std::atomic<std::uint64_t> captures{0};
std::atomic<std::uint64_t> handles{0};

}  // namespace

std::string to_string(PoolId id) { return fmt::format("({}, {})", id.first, id.second); }

PoolId capture_pool_id() noexcept { return {++captures, 0}; }

PoolId graph_pool_handle() noexcept { return {0, ++handles}; }

void require_private(PoolId id) {
  if ((id.first == 0) == (id.second == 0))
    throw InvalidArgument(
        fmt::format("pool {}: expected a pair of which one is 0 and the other is not", to_string(id)));
}

bool PrivatePool::is_referenced() const { return uses != 0 || dependents != 0 || streams.is_referenced(); }

PrivatePool* PrivatePools::find(PoolId id) const {
  const auto place = pools_.find(id);
  return place == pools_.end() ? nullptr : place->second.get();
}

PrivatePool& PrivatePools::add(PoolId id) {
  return *pools_.emplace(id, std::make_unique<PrivatePool>(id, arena_)).first->second;
}

PrivatePools::Pools::iterator PrivatePools::drop(Pools::iterator place, Retired& retired) noexcept {
  PrivatePool& pool = *place->second;
  if (pool.parent != nullptr) --pool.parent->dependents;
  retired.owners.splice_after(retired.owners.before_begin(), pool.owner);
  pool.streams.drop_unreferenced();
  return pools_.erase(place);
}

void PrivatePools::drop_if_unreferenced(PrivatePool& pool, Retired& retired) noexcept {
  PrivatePool* one = &pool;
  while (one != nullptr && !one->is_referenced()) {
    PrivatePool* const above = one->parent;
    drop(pools_.find(one->id), retired);
    one = above;
  }
  if (one != nullptr) one->streams.drop_unreferenced();
}

void PrivatePools::drop_unreferenced(Retired& retired) noexcept {
  // The end of one pool may have been the last that referred to its parent.
  for (bool dropped = true; dropped;) {
    dropped = false;
    for (auto place = pools_.begin(); place != pools_.end();) {
      if (place->second->is_referenced()) {
        ++place;
        continue;
      }
      place = drop(place, retired);
      dropped = true;
    }
  }
  for (const auto& [id, pool] : pools_) pool->streams.drop_unreferenced();
}

}  // namespace cistern
