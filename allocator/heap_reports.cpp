// The figures of a heap that need no walk, and what is asked of one block.

#include "allocator/heap_reports.h"

namespace cistern {

bool HeapReports::can_serve(const AllocatorOptions& options) const {
  const HeapLook look(mutex_);
  return can_serve_while_locked(options);
}

bool HeapReports::can_serve_while_locked(const AllocatorOptions& options) const noexcept {
  return !needs_pages(options) || pages_ != nullptr;
}

bool HeapReports::knows_capture() const {
  const HeapLook look(mutex_);
  return routing_.capture_under_way(true);
}

double HeapReports::memory_fraction() const {
  const HeapLook look(mutex_);
  return fraction_;
}

std::uint64_t HeapReports::requests_without_addresses() const {
  const HeapLook look(mutex_);
  return requests_without_addresses_;
}

MemoryStats HeapReports::stats(ReservedByPrivatePool* pools) const {
  const HeapLook look(mutex_);
  if (pools != nullptr && !follows_2_4()) {
    private_pools_.for_each([&](const PrivatePool& pool) {
      pools->emplace(std::pair(pool.id.first, pool.id.second), pool.reserved.stats().reserved_bytes);
    });
  }
  return recorder_.stats();
}

MemoryStats HeapReports::pool_stats(PoolId id) const {
  const HeapLook look(mutex_);
  return used_pool(id).recorder.stats();
}

void HeapReports::reset_pool_peaks(PoolId id) {
  const Lock lock(mutex_);
  used_pool(id).recorder.reset_peaks();
}

void HeapReports::reset_peak_stats() {
  const Lock lock(mutex_);
  recorder_.reset_peaks();
  private_pools_.for_each([](PrivatePool& pool) { pool.reserved.reset_peaks(); });
}

void HeapReports::reset_accumulated_stats() {
  const Lock lock(mutex_);
  recorder_.reset_accumulated();
  if (paged_ != nullptr) paged_->hand_overs.reset();
  private_pools_.for_each([](PrivatePool& pool) { pool.reserved.reset_accumulated(); });
}

}  // namespace cistern
