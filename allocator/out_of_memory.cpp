// The end of the ladder: what the device and the heap look like, why the request failed,
// and what would have helped.

#include "allocator/device_allocator.h"
#include "allocator/out_of_memory_dump.h"
#include "allocator/range_search.h"
#include "runtime/device_processes.h"
#include "runtime/driver_error.h"
#include "stats/fixed_text_format.h"
#include "stats/out_of_memory_text.h"
#include "stats/sizes.h"
#include "stats/summary.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>

namespace cistern {
namespace {

// Without the device's figures what they would tell apart is the driver's refusal.
OutOfMemoryCause cause_by_limit(const OutOfMemoryReport& report) {
  const bool exceeds = report.limit_bytes && report.reserved_bytes + report.segment_bytes > *report.limit_bytes;
  return exceeds ? OutOfMemoryCause::limit : OutOfMemoryCause::driver_refusal;
}

OutOfMemoryCause find_cause(const OutOfMemoryReport& report) {
  if (report.rounded_bytes > report.device_total_bytes) return OutOfMemoryCause::too_large;
  if (!report.has_device_figures) return cause_by_limit(report);
  if (report.limit_bytes && report.reserved_bytes + report.segment_bytes > *report.limit_bytes &&
      report.device_free_bytes >= report.segment_bytes)
    return OutOfMemoryCause::limit;
  if (report.device_free_bytes >= report.segment_bytes) return OutOfMemoryCause::driver_refusal;
  if (report.device_free_bytes + report.pending_free_bytes >= report.segment_bytes && report.pending_free_bytes != 0)
    return OutOfMemoryCause::pending_frees;
  if (report.private_pools_free_bytes != 0 &&
      report.device_free_bytes + report.private_pools_free_bytes >= report.segment_bytes)
    return OutOfMemoryCause::graph_pools;
  if (report.device_free_bytes + report.free_split_bytes + report.free_whole_bytes >= report.rounded_bytes)
    return OutOfMemoryCause::fragmented;
  return OutOfMemoryCause::device_full;
}

// Whether what a flush gives back would have been enough.
bool fits_after_flush(const OutOfMemoryReport& report) {
  const std::size_t flushed = report.free_whole_bytes + report.pending_free_bytes;
  return report.device_free_bytes + flushed >= report.segment_bytes &&
         (!report.limit_bytes || report.reserved_bytes - flushed + report.segment_bytes <= *report.limit_bytes);
}

// Sentences on who uses the device; nothing where nobody can tell.
using ProcessesText = FixedText<1024>;
ProcessesText describe_processes(const DriverApi& api, CUdevice device) noexcept {
  ProcessesText text;
  try {
    for (const GpuProcess& process : processes_on(api, device)) {
      if (!process.bytes) continue;
      if (process.id == static_cast<std::uint32_t>(::getpid()))
        append(text, "Including memory outside cistern, this process has {} memory in use. ",
               format_size(*process.bytes));
      else
        append(text, "Process {} has {} memory in use. ", process.id, format_size(*process.bytes));
    }
  } catch (...) {  // no library that tells, or no host memory to ask it with
    text.clear();
  }
  return text;
}

}  // namespace

// Gives the lock up, tells the observers, writes summary and snapshot where oom_dump says, throws. All of it
// without host memory, which may be as short. A failure inside an observer is told to its caller
// alone: telling observers of it would not end.
void DeviceAllocator::fail(const Request& request, Lock& lock) {
  lock.unlock();
  const ProcessesText processes = describe_processes(api_, surroundings_.contexts.driver_device(device_));
  lock.lock();
  const std::optional<MemoryInfo> memory = memory_beside_heap(lock);
  TracePoint at;
  at.address = memory ? memory->free : 0;
  at.size = static_cast<std::int64_t>(request.rounded);
  at.stream = stream_number(request.pools->stream);
  if (const PrivatePool* home = request.pools->home) at.pool = encode_pool(home->id.first, home->id.second);
  at.stack = lock.stack;
  recorder_.out_of_memory(at);
  const OutOfMemoryReport report = make_report(request, memory);
  const MemoryStats stats = recorder_.stats();
  const DumpPlace place = Observers::is_observing() ? "off" : options_.oom_dump.c_str();
  const FixedText<16> title = options_.summary_title;
  lock.unlock();
  OutOfMemoryError::Text text = format_out_of_memory(report, processes);
  OutOfMemoryDump dump(place);
  if (!Observers::is_observing()) surroundings_.observers.out_of_memory(report);
  SummaryText summary;
  append_summary(summary, stats, device_, false, title);
  dump.write(text, summary);
  dump.write_snapshot(surroundings_.snapshots);
  dump.name_snapshot(text);
  throw OutOfMemoryError(report, text);
}

// A size that no device has, refused before it touches anything: no counter moves and nobody
// is told but the caller, as in PyTorch.
void DeviceAllocator::refuse_too_large(std::size_t bytes) {
  Section section(*this);
  Request request;
  request.bytes = request.rounded = request.segment_bytes = bytes;
  request.kind = PoolKind::large;
  const OutOfMemoryReport report = make_report(request, memory_beside_heap(section.lock));
  section.lock.unlock();
  throw OutOfMemoryError(report, format_out_of_memory(report));
}

MemoryInfo HeapReports::device_memory() const {
  const ContextGuard guard(api_, context_);
  MemoryInfo memory;
  check_driver(api_, api_.mem_get_info(&memory.free, &memory.total), DriverEntryId::mem_get_info,
               [&] { return fmt::format("device {}", device_); });
  return memory;
}

// What the driver says of the device while the heap holds what it holds now: asked again as long as that
// changes meanwhile. Not under the lock, since the driver may keep the call waiting for another thread's,
// which waits for the device. Nothing if it does not say.
std::optional<MemoryInfo> DeviceAllocator::memory_beside_heap(Lock& lock) const noexcept {
  constexpr int kMostTries = 8;  // then make_report takes the heap's word
  const auto moving = [this] {
    return std::tuple(held_bytes_, arriving_bytes_, range_operations_, reclaims_in_flight_);
  };
  std::optional<MemoryInfo> memory;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const auto before = moving();
    lock.unlock();
    try {
      memory = device_memory();
    } catch (...) {  // the request's failure is what the caller must hear of
      memory.reset();
    }
    lock.lock();
    if (!memory || moving() == before) break;
  }
  return memory;
}

// Of the free blocks that are large enough the nearest to the request. In private pools of others there is none:
// what they keep is another cause.
std::optional<UnusableBlock> DeviceAllocator::find_unusable(const Request& request) const {
  std::optional<UnusableBlock> nearest;
  const auto reason_of = [&](const Block& block) {
    const Segment& segment = *block.segment;
    if (segment.kind != request.kind) return UnusableBlock::Reason::other_size;
    if (segment.owner != request.pools) return UnusableBlock::Reason::other_stream;
    if (!serves(segment)) return UnusableBlock::Reason::expandable_off;
    if (!policy_.may_serve(block.bytes, request.rounded)) return UnusableBlock::Reason::kept_whole;
    return UnusableBlock::Reason::found_late;
  };
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    const PrivatePool* pool = segment->owner->home;
    if (segment->releasing || (pool != nullptr && pool != request.pools->home)) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::inactive || block->bytes < request.rounded) continue;
      const UnusableBlock found{reason_of(*block), block->bytes};
      if (!nearest || found.reason < nearest->reason ||
          (found.reason == nearest->reason && found.bytes > nearest->bytes))
        nearest = found;
    }
  }
  return nearest;
}

// A free block of the request's own pool that nobody searches for any more.
const Block* DeviceAllocator::found_late(const Request& request) const {
  const BlockPool& pool = request.pools->of(request.kind);
  return choose_beside_ranges(pool, pool.best_fit(request.rounded), options_.policy == Policy::expandable);
}

// All figures of one moment: those of the heap under one lock, and of the driver's what goes with them.
OutOfMemoryReport DeviceAllocator::make_report(const Request& request, const std::optional<MemoryInfo>& memory) const {
  const Usage usage = usage_locked(request.pools == nullptr ? nullptr : request.pools->home);
  OutOfMemoryReport report;
  report.device = device_;
  report.requested_bytes = request.bytes;
  report.rounded_bytes = request.rounded;
  report.segment_bytes = request.segment_bytes;
  report.reserved_bytes = held_bytes_;
  report.has_device_figures = memory.has_value();
  report.device_total_bytes = memory ? memory->total : device_total_bytes_;
  if (memory) {
    const std::size_t not_held = memory->total - std::min(memory->total, held_bytes_);
    report.device_free_bytes = std::min(memory->free, not_held);
    report.outside_bytes = not_held - report.device_free_bytes;
  }
  if (limit_bytes_ != kUnlimited) report.limit_bytes = limit_bytes_;
  report.allocated_bytes = static_cast<std::size_t>(usage.stats.allocated_bytes.all.current);
  report.pending_free_bytes = usage.pending;
  report.free_split_bytes = usage.free_split;
  report.free_whole_bytes = usage.free_whole;
  report.own_pool_free_split_bytes = usage.own_pool_free_split;
  report.own_pool_free_whole_bytes = usage.own_pool_free_whole;
  report.private_pools_free_bytes = usage.free_private;
  report.largest_free_block_bytes = usage.largest_free_block;
  report.cause = find_cause(report);
  if (report.cause == OutOfMemoryCause::fragmented && request.pools != nullptr && caches_)
    report.unusable = find_unusable(request);
  if (report.cause == OutOfMemoryCause::driver_refusal && request.pools != nullptr &&
      (expands(request) || is_paged(request)) && out_of_addresses_)
    report.cause = OutOfMemoryCause::address_space;
  const Block* fitting = request.pools == nullptr ? nullptr : found_late(request);
  if (caches_ && fitting != nullptr && policy_.may_serve(fitting->bytes, request.rounded))
    report.advice =
        "research_after_flush:True would have served this request: a free block large enough was there after the "
        "last flush.";
  else if (caches_ && capture_under_way() && fits_after_flush(report))
    report.advice =
        "A capture is under way, during which nothing is waited for and nothing cached is given back: empty_cache() "
        "before the capture would have made room, and the next request after it does.";
  else if (report.cause == OutOfMemoryCause::address_space && is_paged(request))
    report.advice =
        "The driver had no addresses left for paged memory, which reserves four times the device's memory at once, and "
        "no segment for the request: empty_cache() gives back addresses that nothing is mapped at.";
  else if (report.cause == OutOfMemoryCause::address_space)
    report.advice =
        "Each stream and pool size has an address range of an eighth more than the device's memory: fewer streams or "
        "pools, or expandable_segments:False, need fewer addresses.";
  else if (report.cause == OutOfMemoryCause::limit)
    append(report.advice, "The memory fraction is {:.4g}: a larger one would allow it.", fraction_);
  else if (report.cause == OutOfMemoryCause::graph_pools)
    report.advice =
        "Destroying graphs that are no longer launched and releasing their pools gives that memory back at the next "
        "flush; graphs that never run at once can share a pool; a MemPool with use_on_oom serves such requests.";
  else if (report.unusable && report.unusable->reason == UnusableBlock::Reason::kept_whole)
    report.advice =
        "A larger max_split_size_mb, or a larger max_non_split_rounding_mb, would let such blocks serve such requests.";
  else if (report.unusable && report.unusable->reason == UnusableBlock::Reason::other_stream &&
           options_.policy == Policy::classic)
    report.advice =
        "Memory goes from stream to stream in whole segments: expandable_segments:True lets it go by the page, and "
        "what is allocated on the stream that freed it finds it at once.";
  else if (report.cause == OutOfMemoryCause::fragmented && !report.unusable && policy_.max_split_size() == kUnlimited &&
           options_.policy == Policy::classic)
    report.advice =
        "expandable_segments:True lets segments grow into each other, and max_split_size_mb keeps large blocks whole: "
        "either may leave less of it in pieces.";
  return report;
}

}  // namespace cistern
