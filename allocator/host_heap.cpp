#include "allocator/host_heap.h"

#include "allocator/driver_scope.h"
#include "allocator/host_counts.h"
#include "allocator/host_sizes.h"
#include "runtime/driver_error.h"
#include "runtime/host_block_note.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace cistern {

HostHeap::HostHeap(Contexts& contexts, EventPools& event_pools, HostMemoryKind kind, KnowsCapture knows_capture)
    : contexts_(contexts),
      api_(contexts.api()),
      event_pools_(event_pools),
      kind_(kind),
      knows_capture_(std::move(knows_capture)),
      source_(contexts, kind),
      pending_(api_, event_pools, 0) {}

// What the driver refuses here stays with the driver: a heap that ends has nobody to tell.
HostHeap::~HostHeap() {
  knows_capture_ = nullptr;
  if (segments_ == nullptr) return;
  Lock lock(mutex_);
  try {
    end_captured_uses();
    wait_for_all(lock);
  } catch (...) {  // the work is waited for below, once more
    if (!lock.owns_lock()) lock.lock();
  }
  const bool in_use = stats_.active_requests.current != 0;
  lock.unlock();
  try {
    const DriverScope scope(api_, contexts_.primary(home_device_), true);
    if (in_use) static_cast<void>(api_.ctx_synchronize());
    DriverEntryId failed = DriverEntryId::mem_free_host;
    for (Segment* segment = segments_; segment != nullptr; segment = segment->next)
      static_cast<void>(source_.release(segment->address, segment->bytes, &failed));
  } catch (...) {  // no context: the driver is gone, and the memory with it
  }
}

HostHeap::Request HostHeap::make_request(std::size_t bytes, std::size_t alignment, int device) {
  const bool by_page = alignment > host_sizes::kAlignment;
  Request request;
  request.bytes = bytes;
  request.rounded = by_page ? host_sizes::round_up(bytes, host_sizes::kPage) : host_sizes::round(bytes);
  request.kind = by_page ? PoolKind::large : host_sizes::pool(request.rounded);
  request.segment_bytes = request.rounded <= host_sizes::kLargestClass ? host_sizes::kSmallSegment : request.rounded;
  request.device = device;
  return request;
}

void* HostHeap::allocate(std::size_t bytes, std::size_t alignment, int device) {
  contexts_.require(device);
  if (!std::has_single_bit(alignment) || alignment > host_sizes::kPage)
    throw InvalidArgument(
        fmt::format("alignment {}: expected a power of two, at most {}", alignment, host_sizes::kPage));
  if (bytes == 0) return nullptr;
  Lock lock(mutex_);
  if (bytes >= host_sizes::kTooLarge) {
    const Request request{bytes, bytes, bytes, PoolKind::large, device};
    refuse(request, CUDA_ERROR_OUT_OF_MEMORY, DriverEntryId::mem_host_alloc, lock);
  }
  const Request request = make_request(bytes, alignment, device);
  end_captured_uses();
  if (unguarded_ != nullptr) retry_unguarded(lock);
  poll(lock);
  Block* block = take(request);
  if (block == nullptr) block = serve_miss(request, lock);
  return reinterpret_cast<void*>(block->address);
}

// The best-fitting free block, cut to the request; nullptr if none is large enough. Throws std::bad_alloc, unchanged.
Block* HostHeap::take_from(BlockPool& pool, const Request& request) {
  Block* const free = pool.best_fit(request.rounded);
  if (free == nullptr) return nullptr;
  arena_.reserve(1, 0);
  live_.make_room();
  Block* const block = take_front(free, request.rounded, pool, arena_.spares());
  block->state = BlockState::active_allocated;
  block->kind = request.kind;
  block->requested = request.bytes;
  live_.insert(block);
  api_.note_allocate(block->address, block->bytes, nullptr, &kHostBlockNote);
  count_in(stats_.active_requests, 1);
  count_in(stats_.active_bytes, block->bytes);
  return block;
}

// Pages of a large segment for a request of a class, when the driver has no more: what is left begins at a page still.
Block* HostHeap::take_pages_for_class(const Request& request) {
  if (request.kind != PoolKind::small) return nullptr;
  Request pages = request;
  pages.rounded = host_sizes::round_up(request.rounded, host_sizes::kPage);
  return take_from(large_, pages);
}

// After each rung the pools are searched again: what others freed meanwhile serves as well.
Block* HostHeap::serve_miss(const Request& request, Lock& lock) {
  DriverEntryId failed = DriverEntryId::mem_host_alloc;
  CUresult result = add_segment(request, &failed, lock);
  if (Block* block = take(request)) return block;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    wait_for_all(lock);
    if (Block* block = take(request)) return block;
    release_cached(lock);
    result = add_segment(request, &failed, lock);
    if (Block* block = take(request)) return block;
    if (Block* block = take_pages_for_class(request)) return block;
  }
  refuse(request, result, failed, lock);
}

HostHeap::Freed HostHeap::free(std::uint64_t address, std::optional<std::size_t> bytes,
                               std::size_t* requested) noexcept {
  Lock lock(mutex_);
  Block* const block = live_.find(address);
  if (block == nullptr) {
    api_.note_free(address, 0, nullptr);
    return Freed::no_block;
  }
  *requested = block->requested;
  if (bytes && *bytes != block->requested) return Freed::other_size;
  live_.erase(address);
  api_.note_free(address, block->bytes, nullptr, &kHostBlockNote);
  block->state = BlockState::active_pending_free;
  block->pending_events =
      static_cast<std::uint32_t>(std::distance(block->uses.begin(), block->uses.end())) + block->holds;
  static_cast<void>(guard(block, lock));
  return Freed::done;
}

bool HostHeap::record_use(std::uint64_t address, StreamUse use) {
  if (is_captured(use)) return keep_for_graph(address, use);
  const CUstream handle = use.stream.handle;
  StreamUses added;  // made and ended without the lock
  added.push_front(std::move(use));
  const Lock lock(mutex_);
  Block* const block = live_.find(address);
  if (block == nullptr) return false;
  const auto is_known = [&](const StreamUse& known) { return same_stream(known, added.front()); };
  if (std::any_of(block->uses.begin(), block->uses.end(), is_known)) return true;
  block->uses.splice_after(block->uses.before_begin(), added);
  api_.note_use(address, block->bytes, handle, &kHostBlockNote);
  return true;
}

void HostHeap::set_source(const HostSourceOptions& options) noexcept {
  const Lock lock(mutex_);
  source_options_ = options;
}

HostMemoryStats HostHeap::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

void HostHeap::reset_peaks() noexcept {
  const Lock lock(mutex_);
  cistern::reset_peaks(stats_);
}

void HostHeap::reset_accumulated() noexcept {
  const Lock lock(mutex_);
  cistern::reset_accumulated(stats_);
}

void HostHeap::check() const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("host heap: ") + what);
  };
  const Lock lock(mutex_);
  std::int64_t segments = 0, held = 0, active = 0, active_bytes = 0;
  std::size_t live = 0;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    ++segments;
    held += static_cast<std::int64_t>(segment->bytes);
    std::uint64_t address = segment->address;
    const Block* before = nullptr;
    for (const Block* block = segment->first; block != nullptr; before = block, block = block->next) {
      require(block->address == address && block->bytes != 0, "blocks tile their segment");
      require(block->segment == segment && block->previous == before, "blocks know their place");
      address += block->bytes;
      const bool is_free = block->state == BlockState::inactive;
      require(!is_free || before == nullptr || before->state != BlockState::inactive, "free neighbours are one");
      require(is_free == (segment->pool->contains(block) || segment->releasing), "free blocks are in their pool");
      if (is_free) continue;
      ++active;
      active_bytes += static_cast<std::int64_t>(block->bytes);
      if (block->state != BlockState::active_allocated) continue;
      ++live;
      require(live_.find(block->address) == block, "live blocks are found by their address");
    }
    require(address == segment->end(), "blocks fill their segment");
  }
  require(live == live_.size(), "only live blocks are found by their address");
  require(segments == stats_.allocations.current && held == stats_.allocated_bytes.current,
          "what is held is what is counted");
  require(active == stats_.active_requests.current && active_bytes == stats_.active_bytes.current,
          "what is active is what is counted");
}

}  // namespace cistern
