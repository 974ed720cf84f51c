// Segments of host memory from the driver and back to it, without the lock.

#include "allocator/driver_scope.h"
#include "allocator/host_counts.h"
#include "allocator/host_heap.h"
#include "runtime/driver_error.h"
#include "stats/fixed_text_format.h"
#include "stats/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace cistern {

// One attempt; the segment's one block is free then. Throws std::bad_alloc, unchanged.
CUresult HostHeap::add_segment(const Request& request, DriverEntryId* failed, Lock& lock) {
  arena_.reserve(1, 1);
  Segment* const segment = arena_.take_segment();
  Block* const block = arena_.take_block();
  const HostSourceOptions options = source_options_;
  lock.unlock();
  std::uint64_t address = 0;
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  *failed = DriverEntryId::ctx_set_current;
  const Clock::time_point begin = Clock::now();
  try {
    const DriverScope scope(api_, contexts_.primary(request.device), true);
    result = source_.allocate(request.segment_bytes, request.device, options, &address, failed);
  } catch (const DriverError& error) {
    result = static_cast<CUresult>(error.code());
  } catch (const std::bad_alloc&) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Clock::duration took = Clock::now() - begin;
  lock.lock();
  if (result != CUDA_SUCCESS) {
    arena_.give_back(block);
    arena_.give_back(segment);
    return result;
  }
  if (segments_ == nullptr) home_device_ = request.device;
  segment->address = block->address = address;
  segment->bytes = block->bytes = request.segment_bytes;
  segment->kind = request.kind;
  segment->pool = &pool_of(request.kind);
  segment->first = segment->last = block;
  segment->next = segments_;
  if (segments_ != nullptr) segments_->previous = segment;
  segments_ = segment;
  block->segment = segment;
  segment->pool->insert(block);
  count_in(stats_.allocations, 1);
  count_in(stats_.allocated_bytes, segment->bytes);
  ++stats_.num_host_alloc;
  count_call(stats_.host_alloc_time, took);
  return result;
}

void HostHeap::empty_cache() {
  Lock lock(mutex_);
  wait_for_all(lock);
  release_cached(lock);
}

// All segments that are wholly free, out of their pools.
SegmentList HostHeap::take_cached() noexcept {
  SegmentList cached;
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    Block* const block = segment->first;
    if (segment->releasing || block != segment->last || block->state != BlockState::inactive) continue;
    segment->pool->erase(block);
    segment->releasing = true;
    cached.push_back(segment);
  }
  return cached;
}

// Gives them back, and waits until no other thread is in the middle of that. What the driver refuses stays cached, and
// the first refusal is thrown.
void HostHeap::release_cached(Lock& lock) {
  SegmentList cached = take_cached();
  ++releases_in_flight_;
  const int device = home_device_;
  lock.unlock();
  SegmentList kept;
  CUresult refusal = CUDA_SUCCESS;
  DriverEntryId failed = DriverEntryId::ctx_set_current;
  while (Segment* segment = cached.pop_front()) {
    DriverEntryId entry = DriverEntryId::ctx_set_current;
    const Clock::time_point begin = Clock::now();
    const CUresult result = release(*segment, device, &entry);
    const Clock::duration took = Clock::now() - begin;
    if (result == CUDA_SUCCESS) {
      lock.lock();
      count_call(stats_.host_free_time, took);
      forget(segment);
      lock.unlock();
      continue;
    }
    if (std::exchange(refusal, result) == CUDA_SUCCESS) failed = entry;
    kept.push_back(segment);
  }
  lock.lock();
  while (Segment* segment = kept.pop_front()) {
    segment->releasing = false;
    segment->pool->insert(segment->first);
  }
  --releases_in_flight_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return releases_in_flight_ == 0; });
  check_driver(api_, refusal, failed, [] { return std::string("a segment of cached host memory"); });
}

CUresult HostHeap::release(const Segment& segment, int device, DriverEntryId* failed) noexcept {
  try {
    const DriverScope scope(api_, contexts_.primary(device), true);
    return source_.release(segment.address, segment.bytes, failed);
  } catch (...) {  // the context could not be made current
    return CUDA_ERROR_INVALID_CONTEXT;
  }
}

void HostHeap::forget(Segment* segment) noexcept {
  count_out(stats_.allocations, 1);
  count_out(stats_.allocated_bytes, segment->bytes);
  ++stats_.num_host_free;
  (segment->previous == nullptr ? segments_ : segment->previous->next) = segment->next;
  if (segment->next != nullptr) segment->next->previous = segment->previous;
  arena_.give_back(segment->first);
  arena_.give_back(segment);
}

// Where the heap's bytes are, for a request that fails. O(blocks), without host memory.
OutOfMemoryReport HostHeap::report_of(const Request& request) const noexcept {
  OutOfMemoryReport report;
  report.device = -1;
  report.cause = OutOfMemoryCause::driver_refusal;
  report.requested_bytes = request.bytes;
  report.rounded_bytes = request.rounded;
  report.segment_bytes = request.segment_bytes;
  report.has_device_figures = false;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    report.reserved_bytes += segment->bytes;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state == BlockState::active_allocated) {
        report.allocated_bytes += block->bytes;
      } else if (block->state == BlockState::active_pending_free) {
        report.pending_free_bytes += block->bytes;
      } else {
        (block->is_split() ? report.free_split_bytes : report.free_whole_bytes) += block->bytes;
        report.largest_free_block_bytes = std::max(report.largest_free_block_bytes, block->bytes);
      }
    }
  }
  return report;
}

void HostHeap::refuse(const Request& request, CUresult refusal, DriverEntryId failed, Lock& lock) {
  if (refusal == CUDA_ERROR_NOT_SUPPORTED && kind_ == HostMemoryKind::managed)
    throw NotSupported(fmt::format("device {} has no managed memory", request.device));
  if (refusal != CUDA_ERROR_OUT_OF_MEMORY)
    throw_driver_error(api_, refusal, failed, fmt::format("{} bytes of host memory", request.segment_bytes));
  const OutOfMemoryReport report = report_of(request);
  lock.unlock();
  OutOfMemoryError::Text text;
  append(text,
         "out of memory: {}. Tried to allocate {}. cistern holds {} of it: {} in use, {} freed "
         "but still used by streams or graphs, {} free in parts of segments. What was cached went back first, and the "
         "driver refused even so.",
         kind_ == HostMemoryKind::managed ? "managed memory" : "page-locked host memory",
         format_size(request.segment_bytes), format_size(report.reserved_bytes), format_size(report.allocated_bytes),
         format_size(report.pending_free_bytes), format_size(report.free_split_bytes + report.free_whole_bytes));
  throw OutOfMemoryError(report, text);
}

}  // namespace cistern
