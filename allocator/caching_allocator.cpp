// CachingAllocator: the public face of a DeviceHeaps of one's own.

#include "allocator/caching_allocator_state.h"
#include "allocator/host_sizes.h"

#include <atomic>

namespace cistern {
namespace {

void free_of(HostHeap& heap, void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::size_t requested = 0;
  if (address != 0 && heap.free(address, std::nullopt, &requested) == HostHeap::Freed::no_block)
    say_nothing_was_freed(address);
}

}  // namespace

CachingAllocator::CachingAllocator(const CachingAllocatorOptions& options) : state_(std::make_unique<State>(options)) {}

// In a forked child the driver is the parent's, and so is what this holds of it. It stays reachable: who looks for
// leaks finds none.
CachingAllocator::~CachingAllocator() {
  if (!state_->is_left_to_parent()) return;
  state_->heaps.link()->heaps = nullptr;
  static std::atomic<State*> left{nullptr};
  state_->left_before = left.load(std::memory_order_relaxed);
  while (!left.compare_exchange_weak(state_->left_before, state_.get(), std::memory_order_relaxed)) {
  }
  static_cast<void>(state_.release());
}

void* CachingAllocator::allocate(std::size_t bytes, StreamHandle stream, int device) {
  if (stream == nullptr) return state_->usable().allocate(bytes, {}, device);
  void* const pointer = state_->allocate(bytes, stream, device);
  keep_frame();
  return pointer;
}

void* CachingAllocator::allocate(std::size_t bytes, const Stream& stream) {
  if (bytes == 0) return nullptr;
  DeviceHeaps& heaps = state_->usable();
  const auto [identity, of_device] = heaps.request_of(stream);
  return heaps.allocate(bytes, identity, of_device);
}

void CachingAllocator::deallocate(void* pointer) noexcept {
  if (!state_->is_left_to_parent()) state_->heaps.deallocate(pointer);
}

void CachingAllocator::deallocate(void* pointer, StreamHandle last_used_on) noexcept {
  if (state_->is_left_to_parent()) return;
  const auto live = state_->heaps.look_at(pointer);
  if (!live) {
    deallocate(pointer);
    return;
  }
  try {
    const StreamUse use = state_->heaps.use_of(last_used_on, live->device);
    if (use.stream.id == live->stream && use.device == live->device)
      state_->heaps.deallocate(pointer);
    else
      state_->heaps.deallocate(pointer, &use);
  } catch (...) {  // no event can guard the free
    state_->heaps.deallocate_after_waiting(pointer);
  }
}

void CachingAllocator::record_stream(void* pointer, StreamHandle stream) {
  DeviceHeaps& heaps = state_->usable();
  if (const auto live = heaps.look_at(pointer)) heaps.record_stream(pointer, heaps.use_of(stream, live->device));
}

void CachingAllocator::record_stream(void* pointer, const Stream& stream) {
  state_->usable().record_stream(pointer, stream);
}

void CachingAllocator::register_stream(StreamHandle stream, int device) {
  DeviceHeaps& heaps = state_->usable();
  heaps.register_stream(heaps.use_of(stream, device));
}

void CachingAllocator::release_stream(StreamHandle stream, int device) {
  const StreamUse use = state_->usable().use_of(stream, device);
  state_->usable().end_stream(use);
}

void CachingAllocator::empty_cache() {
  state_->usable().for_each([](DeviceAllocator& heap) { heap.empty_cache(); });
}

std::size_t CachingAllocator::trim(std::size_t target_bytes, int device) {
  return state_->usable().heap(device).trim(target_bytes);
}

void CachingAllocator::set_memory_fraction(double fraction, int device) {
  state_->usable().heap(device).set_memory_fraction(fraction);
}

double CachingAllocator::memory_fraction(int device) const { return state_->heaps.heap(device).memory_fraction(); }

void CachingAllocator::set_options(std::string_view text) { state_->usable().set_options(text); }
AllocatorOptions CachingAllocator::options() const { return state_->heaps.options(); }

ObserverId CachingAllocator::add_out_of_memory_observer(OutOfMemoryObserver observer) {
  return state_->usable().observers().add(std::move(observer));
}

ObserverId CachingAllocator::add_free_memory_callback(FreeMemoryCallback callback) {
  return state_->usable().observers().add(std::move(callback));
}

bool CachingAllocator::remove_observer(ObserverId id) { return state_->heaps.observers().remove(id); }

MemoryStats CachingAllocator::memory_stats(int device) const { return state_->heaps.stats(device); }

std::map<std::string, std::int64_t> CachingAllocator::memory_stats_flat(int device) const {
  ReservedByPrivatePool pools;
  const MemoryStats stats = state_->heaps.stats(device, &pools);
  return stats.flat(pools);
}

NestedStats CachingAllocator::memory_stats_nested(int device) const {
  ReservedByPrivatePool pools;
  const MemoryStats stats = state_->heaps.stats(device, &pools);
  return stats.nested(pools);
}

ReservedByPrivatePool CachingAllocator::reserved_bytes_by_private_pools(int device) const {
  ReservedByPrivatePool pools;
  static_cast<void>(state_->heaps.stats(device, &pools));
  return pools;
}

std::string CachingAllocator::memory_summary(int device, bool abbreviated) const {
  return state_->heaps.summary(device, abbreviated);
}

std::string CachingAllocator::memory_report(int device) const { return state_->heaps.report(device); }

std::vector<TagStats> CachingAllocator::tag_stats(int device) const { return state_->heaps.tag_stats(device); }
std::vector<StreamStats> CachingAllocator::stream_stats(int device) const { return state_->heaps.stream_stats(device); }

std::vector<HandOverStats> CachingAllocator::hand_over_stats(int device) const {
  return state_->heaps.hand_over_stats(device);
}

std::optional<PendingFree> CachingAllocator::oldest_pending_free(int device) const {
  return state_->heaps.oldest_pending_free(device);
}

FragmentationStats CachingAllocator::fragmentation_stats(std::size_t request_bytes, int device) const {
  return state_->heaps.fragmentation(request_bytes, device);
}

DeviceMemoryStats CachingAllocator::device_memory_stats(int device) const {
  return state_->usable().heap(device).device_memory_stats();
}

Snapshot CachingAllocator::snapshot() const { return state_->heaps.snapshot(); }

void CachingAllocator::record_history(const HistoryOptions& options) { state_->usable().record_history(options); }
HistoryOptions CachingAllocator::history_options() const { return state_->heaps.history_options(); }
HistoryInfo CachingAllocator::history_info(int device) const { return state_->heaps.history_info(device); }

void CachingAllocator::set_user_metadata(std::string_view text) { state_->usable().set_user_metadata(text); }
std::string CachingAllocator::user_metadata() const { return state_->heaps.user_metadata(); }
void CachingAllocator::annotate(void* pointer, std::string_view text) { state_->usable().annotate(pointer, text); }

void CachingAllocator::mark_range(std::string_view name, bool is_start, int device) {
  state_->usable().mark_range(name, is_start, device);
}

void CachingAllocator::begin_allocate_to_pool(int device, PoolId id, const PoolFilter& filter) {
  DeviceAllocator& heap = state_->usable().heap(device);
  heap.begin_allocate_to_pool(id, state_->usable().resolve(filter, device));
}

void CachingAllocator::end_allocate_to_pool(int device, PoolId id) {
  state_->usable().heap(device).end_allocate_to_pool(id);
}

void CachingAllocator::release_pool(int device, PoolId id) { state_->usable().heap(device).release_pool(id); }

std::size_t CachingAllocator::pool_use_count(int device, PoolId id) const {
  return state_->heaps.heap(device).pool_use_count(id);
}

std::vector<SegmentInfo> CachingAllocator::snapshot(int device, PoolId id) const {
  return state_->usable().heap(device).segments_of(id);
}

PoolCheckpoint CachingAllocator::checkpoint_pool(int device, PoolId id) {
  return PoolCheckpoint(state_->usable().heap(device).checkpoint_pool(id));
}

PoolRestored CachingAllocator::restore_pool(int device, const PoolCheckpoint& checkpoint) {
  return state_->usable().heap(device).restore_pool(checkpoint.state());
}

void CachingAllocator::reset_peak_memory_stats(int device) { state_->heaps.heap(device).reset_peak_stats(); }

void CachingAllocator::reset_accumulated_memory_stats(int device) {
  state_->heaps.heap(device).reset_accumulated_stats();
}

void* CachingAllocator::allocate_host(std::size_t bytes, int device) {
  return allocate_host_aligned(bytes, host_sizes::kAlignment, device);
}

void* CachingAllocator::allocate_host_aligned(std::size_t bytes, std::size_t alignment, int device) {
  return state_->usable().host().allocate(bytes, alignment, device);
}

void CachingAllocator::deallocate_host(void* pointer) noexcept {
  if (!state_->is_left_to_parent()) free_of(state_->heaps.host(), pointer);
}

bool CachingAllocator::record_host_stream(void* pointer, StreamHandle stream, int device) {
  return state_->usable().host().record_use(reinterpret_cast<std::uintptr_t>(pointer),
                                            state_->usable().use_of(stream, device));
}

bool CachingAllocator::record_host_stream(void* pointer, const Stream& stream) {
  return state_->usable().host().record_use(reinterpret_cast<std::uintptr_t>(pointer), state_->usable().use_of(stream));
}

void CachingAllocator::empty_host_cache() { state_->usable().host().empty_cache(); }

HostMemoryStats CachingAllocator::host_memory_stats() const { return state_->heaps.host().stats(); }

void CachingAllocator::reset_peak_host_memory_stats() { state_->heaps.host().reset_peaks(); }

void CachingAllocator::reset_accumulated_host_memory_stats() { state_->heaps.host().reset_accumulated(); }

void* CachingAllocator::allocate_managed(std::size_t bytes, int device) {
  return state_->usable().managed().allocate(bytes, host_sizes::kAlignment, device);
}

void CachingAllocator::deallocate_managed(void* pointer) noexcept {
  if (!state_->is_left_to_parent()) free_of(state_->heaps.managed(), pointer);
}

bool CachingAllocator::record_managed_stream(void* pointer, StreamHandle stream, int device) {
  return state_->usable().managed().record_use(reinterpret_cast<std::uintptr_t>(pointer),
                                               state_->usable().use_of(stream, device));
}

void CachingAllocator::empty_managed_cache() { state_->usable().managed().empty_cache(); }

HostMemoryStats CachingAllocator::managed_memory_stats() const { return state_->heaps.managed().stats(); }

void CachingAllocator::check() const {
  state_->heaps.managed().check();
  state_->heaps.host().check();
  state_->heaps.for_each([](const DeviceAllocator& heap) { heap.check(); });
}

}  // namespace cistern
