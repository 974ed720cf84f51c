#include "reference_allocator.h"
#include "tests/byte_units.h"
#include "tests/model/number.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace cistern::model {
namespace {

std::vector<Stat*> all_stats(MemoryStats& stats) {
  std::vector<Stat*> all;
  for (PoolStat* stat :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes})
    for (Stat* part : {&stat->all, &stat->small_pool, &stat->large_pool}) all.push_back(part);
  all.push_back(&stats.oversize_allocations);
  all.push_back(&stats.oversize_segments);
  return all;
}

}  // namespace

ReferenceAllocator::ReferenceAllocator(std::size_t capacity_bytes, const AllocatorOptions& options)
    : capacity_(capacity_bytes), options_(options) {
  stats_.max_split_size = static_cast<std::int64_t>(options.max_split_size_bytes);
  if (options.fraction_given && options.per_process_memory_fraction < 1.0)
    limit_ = static_cast<std::size_t>(options.per_process_memory_fraction * static_cast<double>(capacity_));
}

void ReferenceAllocator::change(PoolStat MemoryStats::*stat, bool small, std::int64_t by, int tag) {
  PoolStat& pools = stats_.*stat;
  move(pools.all, by);
  move(small ? pools.small_pool : pools.large_pool, by);
  changes_.push_back({stat, nullptr, small, by, tag});
}

void ReferenceAllocator::change(Stat MemoryStats::*stat, std::int64_t by) {
  move(stats_.*stat, by);
  changes_.push_back({nullptr, stat, false, by, 0});
}

std::size_t ReferenceAllocator::round(std::size_t bytes) const {
  if (bytes < 512) return 512;
  std::size_t bucket = 0;
  while (bucket < 15 && (std::size_t{2} << bucket) * kMega <= bytes) ++bucket;
  const std::size_t divisions = options_.roundup_power2_divisions[bucket];
  std::size_t step = 512;
  if (divisions > 1 && bytes > 512 * divisions) {
    std::size_t power = 1;
    while (power * 2 <= bytes) power *= 2;
    if (power == bytes) return bytes;
    step = power / divisions;
  }
  while (bytes % step != 0) bytes += step - bytes % step;
  return bytes;
}

std::size_t ReferenceAllocator::segment_size(std::size_t rounded) const {
  if (rounded <= kMega) return 2 * kMega;
  if (rounded < 10 * kMega) return 20 * kMega;
  return (rounded + 2 * kMega - 1) / (2 * kMega) * (2 * kMega);
}

bool ReferenceAllocator::collects() const { return limit_ != kUnlimited && options_.garbage_collection_threshold > 0; }

std::optional<std::uint64_t> ReferenceAllocator::allocate(std::size_t bytes, int stream) {
  poll();
  return serve(route(stream), bytes, stream);
}

std::optional<std::uint64_t> ReferenceAllocator::allocate_in(int pool, std::size_t bytes, int stream) {
  poll();
  return serve(pool, bytes, stream);
}

std::optional<std::uint64_t> ReferenceAllocator::serve(int pool, std::size_t bytes, int stream) {
  const std::size_t rounded = round(bytes);
  const bool small = rounded <= kMega;
  auto place = find_free(rounded, stream, small, pool);
  if (!place && collects()) collect_garbage();
  if (!place) place = new_segment(rounded, stream, small, pool);
  if (!place && !follows_2_4()) place = find_overflow(rounded, stream, small, pool);
  if (!place && release_available(rounded, stream, small, pool)) place = new_segment(rounded, stream, small, pool);
  if (!place && !capturing()) {
    flush();
    if (options_.research_after_flush) place = find_free(rounded, stream, small, pool);
    if (!place) {
      ++stats_.num_alloc_retries;
      place = new_segment(rounded, stream, small, pool);
    }
  }
  if (!place && follows_2_4()) place = find_overflow(rounded, stream, small, pool);
  if (!place) {
    ++stats_.num_ooms;
    return std::nullopt;
  }
  return hand_out(*place, rounded, bytes);
}

std::optional<ReferenceAllocator::Place> ReferenceAllocator::find_free(std::size_t rounded, int stream, bool small,
                                                                       int pool) {
  if (collects() && pool == 0) ++searches_[small];
  std::vector<Place> candidates;
  for (auto segment = segments_.begin(); segment != segments_.end(); ++segment) {
    if (segment->stream != stream || segment->small != small || segment->pool != pool) continue;
    for (std::size_t i = 0; i < segment->blocks.size(); ++i)
      if (segment->blocks[i].free() && segment->blocks[i].bytes >= rounded) candidates.emplace_back(segment, i);
  }
  const auto best = prefer_beside_ranges(std::move(candidates));
  if (!best) return best;
  const std::size_t found = best->first->blocks[best->second].bytes;
  const std::size_t oversize = options_.max_split_size_bytes;
  if (rounded < oversize ? found >= oversize : found >= rounded + options_.max_non_split_rounding_bytes)
    return std::nullopt;
  return best;
}

std::optional<ReferenceAllocator::Place> ReferenceAllocator::new_segment(std::size_t rounded, int stream, bool small,
                                                                         int pool) {
  const std::size_t bytes = segment_size(rounded);
  if (limit_ != kUnlimited && held_ + bytes > limit_) return std::nullopt;
  if (expands(pool)) return grow(rounded, stream, small, pool);
  if (held_ + bytes > capacity_) return std::nullopt;
  // The lowest gap between the segments, which are kept by address. Addresses are virtual:
  // only bytes run out.
  std::uint64_t address = 0;
  auto after = segments_.begin();
  while (after != segments_.end() && after->address < address + bytes) {
    address = after->address + after->bytes;
    ++after;
  }
  ModelSegment segment{address, bytes, stream, small, {ModelBlock{}}, pool};
  segment.blocks[0].address = address;
  segment.blocks[0].bytes = bytes;
  held_ += bytes;
  ++stats_.num_device_alloc;
  change(&MemoryStats::segment, small, 1);
  change(&MemoryStats::reserved_bytes, small, number(bytes));
  if (bytes >= options_.max_split_size_bytes) change(&MemoryStats::oversize_segments, 1);
  return Place(segments_.insert(after, segment), 0);
}

std::uint64_t ReferenceAllocator::hand_out(Place place, std::size_t rounded, std::size_t requested) {
  auto [segment, index] = place;
  const bool was_split = segment->is_split();
  const std::size_t whole = segment->blocks[index].bytes;
  const std::size_t rest = whole - rounded;
  const bool may_split = segment->pool == 0 || !pools_[segment->pool].no_split;
  const bool finely = segment->small || options_.policy == Policy::expandable;
  const bool split = may_split && (finely ? rest >= 512 : rounded < options_.max_split_size_bytes && rest > kMega);
  if (split) {
    ModelBlock remainder;
    remainder.address = segment->blocks[index].address + rounded;
    remainder.bytes = rest;
    remainder.free_since = searches_[segment->small];
    segment->blocks[index].bytes = rounded;
    segment->blocks.insert(segment->blocks.begin() + static_cast<std::ptrdiff_t>(index) + 1, remainder);
  }
  if (segment->expandable()) {
    // Not counted: whole pages can always be given back.
  } else if (split && !was_split) {
    change(&MemoryStats::inactive_split, segment->small, 1);
    change(&MemoryStats::inactive_split_bytes, segment->small, number(rest));
  } else if (split) {
    change(&MemoryStats::inactive_split_bytes, segment->small, -number(rounded));
  } else if (was_split) {
    change(&MemoryStats::inactive_split, segment->small, -1);
    change(&MemoryStats::inactive_split_bytes, segment->small, -number(whole));
  }
  ModelBlock& block = segment->blocks[index];
  block.live = true;
  block.requested = requested;
  block.tag = tag_;
  change(&MemoryStats::allocation, segment->small, 1, tag_);
  change(&MemoryStats::allocated_bytes, segment->small, number(block.bytes), tag_);
  change(&MemoryStats::active, segment->small, 1);
  change(&MemoryStats::active_bytes, segment->small, number(block.bytes));
  change(&MemoryStats::requested_bytes, segment->small, number(requested));
  if (block.bytes >= options_.max_split_size_bytes) change(&MemoryStats::oversize_allocations, 1);
  return block.address;
}

ReferenceAllocator::Place ReferenceAllocator::locate(std::uint64_t address) {
  for (auto segment = segments_.begin(); segment != segments_.end(); ++segment)
    for (std::size_t i = 0; i < segment->blocks.size(); ++i)
      if (segment->blocks[i].address == address) return {segment, i};
  throw std::logic_error("the model has no block there");
}

void ReferenceAllocator::record_stream(std::uint64_t address, int stream) {
  auto [segment, index] = locate(address);
  if (segment->stream == stream) return;
  ModelBlock& block = segment->blocks[index];
  const bool is_new = block.users.insert(stream).second;
  if (captured_.count(stream) == 0)
    block.captured_users.erase(stream);
  else if (is_new)
    block.captured_users.insert(stream);
}

void ReferenceAllocator::free(std::uint64_t address) {
  auto [segment, index] = locate(address);
  ModelBlock& block = segment->blocks[index];
  block.live = false;
  block.freed = ++frees_;
  change(&MemoryStats::allocation, segment->small, -1, block.tag);
  change(&MemoryStats::allocated_bytes, segment->small, -number(block.bytes), block.tag);
  if (block.bytes >= options_.max_split_size_bytes) change(&MemoryStats::oversize_allocations, -1);
  if (!block.users.empty()) {
    block.pending = true;
    if (capturing())
      put_off_.push_back(address);
    else
      queue_events(block);
  } else {
    complete_free(address);
  }
  if (segment->pool != 0 && leftovers_) release_leftovers();
}

void ReferenceAllocator::queue_events(ModelBlock& block) {
  for (int user : block.users) pending_[user].push_back({user, queued_[user], block.address});
}

// What was freed during a capture: streams that used it while captured had no work.
void ReferenceAllocator::record_put_off_frees() {
  for (std::uint64_t address : std::exchange(put_off_, {})) {
    const auto [segment, index] = locate(address);
    ModelBlock& block = segment->blocks[index];
    for (int user : block.captured_users) block.users.erase(user);
    if (block.users.empty())
      complete_free(address);
    else
      queue_events(block);
  }
}

void ReferenceAllocator::complete_free(std::uint64_t address) {
  auto [segment, index] = locate(address);
  auto& blocks = segment->blocks;
  const ModelBlock freed = blocks[index];
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  // Joins block `i + 1` to block `i`; `neighbour` is the one that was free already.
  const auto join = [&](std::size_t i, std::size_t neighbour) {
    --count;
    bytes -= number(blocks[neighbour].bytes);
    blocks[i].bytes += blocks[i + 1].bytes;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  };
  blocks[index].pending = false;
  blocks[index].users.clear();
  blocks[index].captured_users.clear();
  if (index + 1 < blocks.size() && blocks[index + 1].free()) join(index, index + 1);
  if (index > 0 && blocks[index - 1].free()) {
    join(index - 1, index - 1);
    --index;
  }
  blocks[index].requested = 0;
  blocks[index].free_since = searches_[segment->small];
  if (segment->is_split()) {
    ++count;
    bytes += number(blocks[index].bytes);
  }
  if (segment->expandable()) count = bytes = 0;
  change(&MemoryStats::inactive_split, segment->small, count);
  change(&MemoryStats::inactive_split_bytes, segment->small, bytes);
  change(&MemoryStats::active, segment->small, -1);
  change(&MemoryStats::active_bytes, segment->small, -number(freed.bytes));
  change(&MemoryStats::requested_bytes, segment->small, -number(freed.requested));
  const bool is_alone =
      (index == 0 || !blocks[index - 1].mapped) && (index + 1 == blocks.size() || !blocks[index + 1].mapped);
  if (segment->pool != 0 && uses(segment->pool) == 0 && pools_[segment->pool].is_mem_pool && is_alone)
    leftovers_ = true;
}

// Stream 0 first, then by descending number.
std::vector<int> ReferenceAllocator::polling_order() const {
  std::vector<int> order;
  for (const auto& [stream, events] : pending_) order.push_back(stream);
  std::sort(order.begin(), order.end(), [](int a, int b) { return a == 0 || (b != 0 && a > b); });
  return order;
}

void ReferenceAllocator::poll() {
  if (capturing()) return;
  record_put_off_frees();
  const bool polls = !pending_.empty();
  query_events();
  if (polls && leftovers_) release_leftovers();
}

void ReferenceAllocator::query_events() {
  for (int stream : polling_order()) {
    auto& events = pending_[stream];
    while (!events.empty() && events.front().position <= done_[stream]) {
      const std::uint64_t block = events.front().block;
      events.erase(events.begin());
      const auto [segment, index] = locate(block);
      auto& users = segment->blocks[index].users;
      users.erase(stream);
      if (users.empty()) complete_free(block);
    }
    if (events.empty()) pending_.erase(stream);
  }
}

void ReferenceAllocator::reset_peaks() {
  for (Stat* stat : all_stats(stats_)) stat->peak = stat->current;
}

void ReferenceAllocator::reset_accumulated() {
  for (Stat* stat : all_stats(stats_)) stat->allocated = stat->freed = 0;
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

}  // namespace cistern::model
