// Whose a heap's memory is: by tag, by stream, by scope; how its free part is cut up; and the walk
// that verifies the tags' and the streams' figures.

#include "allocator/device_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

namespace cistern {
namespace {

// As in snapshots: the legacy default stream is 0, whichever of its two handles was used.
std::int64_t number_of(const StreamIdentity& stream) {
  if (stream.id == kLegacyStreamId) return 0;
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(stream.handle));
}

void require_equal(std::int64_t counted, std::int64_t walked, const char* what, std::uint64_t of) {
  if (counted != walked)
    throw std::logic_error(
        fmt::format("cistern: broken invariant: {} of {} is {}, a walk finds {}", what, of, counted, walked));
}

// Streams by device and id: one default stream a device has the same id.
class StreamTable {
 public:
  StreamStats& of(const StreamIdentity& stream, int device) {
    StreamStats& stats = streams_[{device, stream.id}];
    stats.device = device;
    stats.stream = number_of(stream);
    stats.stream_id = stream.id;
    return stats;
  }
  [[nodiscard]] std::vector<StreamStats> take() const {
    std::vector<StreamStats> all;
    for (const auto& [key, stats] : streams_) all.push_back(stats);
    return all;
  }

 private:
  std::map<std::pair<int, std::uint64_t>, StreamStats> streams_;
};

}  // namespace

template <class Visit>
void DeviceAllocator::for_each_awaited(Visit&& visit) const {
  pending_.for_each([&](const PendingFrees::Entry& entry) { visit(*entry.block, entry.stream, entry.device); });
  for (const Block* block = unrecorded_frees_; block != nullptr; block = block->left)
    for (const StreamUse& use : block->uses) visit(*block, use.stream, use.device);
}

std::vector<TagStats> DeviceAllocator::tag_stats() const {
  std::vector<TagStats> all;
  {
    const Lock lock(mutex_);
    for (std::size_t tag = 0; tag < recorder_.tag_count(); ++tag) {
      const TagFigures figures = recorder_.tag_figures(tag);
      // A number below the last one used here may have been used on other devices only.
      if (tag != kUntagged && figures.allocation.peak == 0 && figures.allocation.allocated == 0) continue;
      all.push_back({tag_registry().name(static_cast<TagId>(tag)), figures.allocation, figures.allocated_bytes,
                     figures.at_peak_bytes});
    }
  }
  std::sort(all.begin(), all.end(), [](const TagStats& a, const TagStats& b) { return a.tag < b.tag; });
  return all;
}

std::vector<StreamStats> DeviceAllocator::stream_stats() const {
  StreamTable table;
  const Lock lock(mutex_);
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    table.of(segment->stream, device_).reserved_bytes += static_cast<std::int64_t>(segment->bytes);
  const auto add_bytes = [&](const PoolPair& pool) {
    if (pool.bytes.active == 0) return;
    StreamStats& stats = table.of(pool.stream, device_);
    stats.live_bytes += pool.bytes.live;
    stats.pending_bytes += pool.bytes.active - pool.bytes.live;
  };
  pools_.for_each(add_bytes);
  private_pools_.for_each([&](const PrivatePool& pool) { pool.streams.for_each(add_bytes); });
  for_each_awaited([&](const Block& block, const StreamIdentity& stream, int device) {
    StreamStats& stats = table.of(stream, device);
    ++stats.awaited_frees;
    stats.awaited_bytes += static_cast<std::int64_t>(block.bytes);
    stats.awaited_since = std::min(stats.awaited_since.value_or(block.freed_at), block.freed_at);
  });
  return table.take();
}

std::optional<PendingFree> DeviceAllocator::oldest_pending_free() const {
  std::optional<PendingFree> oldest;
  const Lock lock(mutex_);
  for_each_awaited([&](const Block& block, const StreamIdentity& stream, int device) {
    if (oldest && oldest->since <= block.freed_at) return;
    oldest = {block.address,
              static_cast<std::int64_t>(block.bytes),
              number_of(block.segment->stream),
              number_of(stream),
              stream.id,
              device,
              block.freed_at};
  });
  return oldest;
}

FragmentationStats DeviceAllocator::fragmentation(std::size_t request_bytes) const {
  FragmentationStats stats;
  stats.request_bytes = request_bytes;
  const Lock lock(mutex_);
  const std::size_t rounded = request_bytes < kTooLarge ? policy_.round(request_bytes) : kUnlimited;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::inactive) continue;
      if (segment->owner->home != nullptr) {
        stats.free_private_bytes += block->bytes;
        continue;
      }
      const std::size_t whole = releasable_bytes(*block);
      stats.free_whole_bytes += whole;
      stats.free_split_bytes += block->bytes - whole;
      ++stats.free_blocks;
      stats.largest_free_block_bytes = std::max(stats.largest_free_block_bytes, block->bytes);
      if (caches_ && segment->kind == policy_.pool(rounded) && block->bytes >= rounded &&
          policy_.may_serve(block->bytes, rounded))
        stats.usable_bytes += block->bytes;
    }
  stats.free_bytes = stats.free_split_bytes + stats.free_whole_bytes;
  return stats;
}

DeviceMemoryStats DeviceAllocator::device_memory_stats() const {
  const MemoryInfo memory = device_memory();
  DeviceMemoryStats stats;
  stats.total = memory.total;
  stats.free = memory.free;
  const Lock lock(mutex_);
  stats.reserved = held_bytes_;
  stats.outside = memory.total - std::min(memory.total, memory.free + held_bytes_);
  return stats;
}

void DeviceAllocator::open_scope(OpenScope& scope) noexcept {
  const Lock lock(mutex_);
  recorder_.open_scope(scope);
}

MemoryStats DeviceAllocator::scope_stats(const OpenScope& scope) const noexcept {
  const Lock lock(mutex_);
  return recorder_.scope_stats(scope);
}

MemoryStats DeviceAllocator::close_scope(OpenScope& scope) noexcept {
  const Lock lock(mutex_);
  const MemoryStats stats = recorder_.scope_stats(scope);
  recorder_.close_scope(scope);
  return stats;
}

void DeviceAllocator::check_tags() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> walked(recorder_.tag_count());
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::active_allocated) continue;
      if (block->tag >= walked.size())
        throw std::logic_error(fmt::format("cistern: broken invariant: no figures are kept of tag {}", block->tag));
      ++walked[block->tag].first;
      walked[block->tag].second += static_cast<std::int64_t>(block->bytes);
    }
  std::int64_t at_peak = 0;
  for (std::size_t tag = 0; tag < walked.size(); ++tag) {
    const TagFigures figures = recorder_.tag_figures(tag);
    require_equal(figures.allocation.current, walked[tag].first, "the blocks of tag", tag);
    require_equal(figures.allocated_bytes.current, walked[tag].second, "the bytes of tag", tag);
    if (figures.allocated_bytes.peak < std::max(figures.allocated_bytes.current, figures.at_peak_bytes))
      throw std::logic_error(fmt::format("cistern: broken invariant: tag {} held more than its peak", tag));
    at_peak += figures.at_peak_bytes;
  }
  require_equal(at_peak, recorder_.stats().allocated_bytes.all.peak, "what all tags held at the peak of device",
                static_cast<std::uint64_t>(device_));
}

void DeviceAllocator::check_streams() const {
  std::map<const PoolPair*, StreamBytes> walked;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const auto bytes = static_cast<std::int64_t>(block->bytes);
      if (block->state == BlockState::active_allocated) walked[segment->owner].live += bytes;
      if (block->state != BlockState::inactive) walked[segment->owner].active += bytes;
    }
  const auto check_pool = [&](const PoolPair& pool) {
    const auto found = walked.find(&pool);
    const StreamBytes bytes = found == walked.end() ? StreamBytes{} : found->second;
    require_equal(pool.bytes.live, bytes.live, "the live bytes of stream", pool.stream.id);
    require_equal(pool.bytes.active, bytes.active, "the active bytes of stream", pool.stream.id);
  };
  pools_.for_each(check_pool);
  private_pools_.for_each([&](const PrivatePool& pool) { pool.streams.for_each(check_pool); });
}

}  // namespace cistern
