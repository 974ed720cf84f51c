// Whose a heap's memory is: by tag, by stream, by scope; how its free part is cut up; and the walk
// that verifies the tags' and the streams' figures.

#include "allocator/heap_reports.h"
#include "stats/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace cistern {
namespace {

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
    stats.stream = stream_number(stream);
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
void HeapReports::for_each_awaited(Visit&& visit) const {
  pending_.for_each([&](const PendingFrees::Entry& entry) { visit(*entry.block, entry.stream, entry.device); });
  for (const Block* block = unrecorded_frees_; block != nullptr; block = block->left)
    for (const StreamUse& use : block->uses) visit(*block, use.stream, use.device);
}

std::vector<TagStats> HeapReports::tag_stats_locked() const {
  std::vector<TagStats> all;
  for (std::size_t tag = 0; tag < recorder_.tag_count(); ++tag) {
    const TagFigures figures = recorder_.tag_figures(tag);
    // Numbers below the last one may have been used elsewhere only.
    if (tag != kUntagged && figures.allocation == Stat{}) continue;
    all.push_back({tag_registry().name(static_cast<TagId>(tag)), figures.allocation, figures.allocated_bytes,
                   figures.at_peak_bytes});
  }
  std::sort(all.begin(), all.end(), [](const TagStats& a, const TagStats& b) { return a.tag < b.tag; });
  return all;
}

std::vector<StreamStats> HeapReports::stream_stats_locked() const {
  StreamTable table;
  const std::vector<std::size_t> in_pages = paged_ == nullptr ? std::vector<std::size_t>() : paged_->owned_bytes();
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    table.of(segment->stream, device_).reserved_bytes += static_cast<std::int64_t>(
        segment->is_paged() ? in_pages[static_cast<std::size_t>(segment->paged_stream)] : segment->bytes);
  const auto add_bytes = [&](const StreamHeap& pool) {
    if (pool.ledger.live_bytes() == 0 && pool.ledger.pending == 0) return;
    StreamStats& stats = table.of(pool.stream, device_);
    stats.live_bytes += pool.ledger.live_bytes();
    stats.pending_bytes += pool.ledger.pending;
  };
  pools_.for_each(add_bytes);
  private_pools_.for_each([&](const PrivatePool& pool) { pool.streams.for_each(add_bytes); });
  if (paged_ != nullptr)
    paged_->for_each_stream([&](StreamNumber number, const PagedMemory::Stream& stream) {
      if (paged_->parting.are_apart() || paged_->hand_overs.stands_alone(number))
        table.of(stream.heap->stream, device_).stands_alone = true;
    });
  const TickClock::Conversion time(history_.clock());
  for_each_awaited([&](const Block& block, const StreamIdentity& stream, int device) {
    StreamStats& stats = table.of(stream, device);
    ++stats.awaited_frees;
    stats.awaited_bytes += static_cast<std::int64_t>(block.bytes);
    const auto since = time.steady(block.freed_at);
    stats.awaited_since = std::min(stats.awaited_since.value_or(since), since);
  });
  return table.take();
}

std::vector<HandOverStats> HeapReports::hand_over_stats_locked() const {
  std::vector<HandOverStats> all;
  if (paged_ == nullptr) return all;
  paged_->hand_overs.for_each([&](StreamNumber to, StreamNumber from, const HandOverTally::Pair& pair) {
    const StreamIdentity& taker = paged_->stream(to).heap->stream;
    const StreamIdentity& owner = paged_->stream(from).heap->stream;
    all.push_back(
        {stream_number(taker), taker.id, stream_number(owner), owner.id, pair.hand_overs, pair.bytes, pair.held_up});
  });
  std::sort(all.begin(), all.end(), [](const HandOverStats& a, const HandOverStats& b) {
    return std::pair(a.to_id, a.from_id) < std::pair(b.to_id, b.from_id);
  });
  return all;
}

std::vector<HeapReports::StackFigures> HeapReports::stack_figures_locked() const {
  std::unordered_map<StackId, StackFigures> by_stack;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::active_allocated) continue;
      StackFigures& figures = by_stack[block->stack];
      figures.bytes += static_cast<std::int64_t>(block->bytes);
      ++figures.blocks;
    }
  if (by_stack.empty() || (by_stack.size() == 1 && by_stack.contains(kNoStackId))) return {};
  std::vector<std::pair<StackId, StackFigures>> largest(by_stack.begin(), by_stack.end());
  std::sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
  });
  std::vector<StackFigures> all;
  all.reserve(largest.size());
  for (auto& [stack, figures] : largest) {
    figures.has_stack = stack != kNoStackId;
    if (figures.has_stack && all.size() < kReportedOwners) {
      const auto frames = history_.frames_of(stack);
      figures.frames.assign(frames.begin(), frames.end());
    }
    all.push_back(std::move(figures));
  }
  return all;
}

std::optional<PendingFree> HeapReports::oldest_pending_free_locked() const {
  std::optional<PendingFree> oldest;
  const TickClock::Conversion time(history_.clock());
  for_each_awaited([&](const Block& block, const StreamIdentity& stream, int device) {
    const auto since = time.steady(block.freed_at);
    if (oldest && oldest->since <= since) return;
    oldest = PendingFree{block.address,
                         static_cast<std::int64_t>(block.bytes),
                         stream_number(block.segment->stream),
                         stream_number(stream),
                         stream.id,
                         device,
                         since};
  });
  return oldest;
}

std::vector<TagStats> HeapReports::tag_stats() const {
  const HeapLook look(mutex_);
  return tag_stats_locked();
}

std::vector<StreamStats> HeapReports::stream_stats() const {
  const HeapLook look(mutex_);
  return stream_stats_locked();
}

std::vector<HandOverStats> HeapReports::hand_over_stats() const {
  const HeapLook look(mutex_);
  return hand_over_stats_locked();
}

std::optional<PendingFree> HeapReports::oldest_pending_free() const {
  const HeapLook look(mutex_);
  return oldest_pending_free_locked();
}

HeapReports::Figures HeapReports::figures() const {
  const HeapLook look(mutex_);
  Figures figures{usage_locked(),
                  tag_stats_locked(),
                  stream_stats_locked(),
                  hand_over_stats_locked(),
                  stack_figures_locked(),
                  oldest_pending_free_locked(),
                  {},
                  options_};
  if (limit_bytes_ != kUnlimited) figures.limit_bytes = limit_bytes_;
  return figures;
}

FragmentationStats HeapReports::fragmentation(std::size_t request_bytes) const {
  FragmentationStats stats;
  stats.request_bytes = request_bytes;
  const HeapLook look(mutex_);
  const Usage usage = usage_locked();
  stats.free_bytes = usage.free_split + usage.free_whole;
  stats.free_split_bytes = usage.free_split;
  stats.free_whole_bytes = usage.free_whole;
  stats.free_private_bytes = usage.free_private;
  stats.largest_free_block_bytes = usage.largest_free_block;
  const std::size_t rounded = request_bytes < kTooLarge ? policy_.round(request_bytes) : kUnlimited;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state != BlockState::inactive || segment->owner->home != nullptr) continue;
      ++stats.free_blocks;
      if (caches_ && serves(*segment) && segment->kind == policy_.pool(rounded) && block->bytes >= rounded &&
          policy_.may_serve(block->bytes, rounded))
        stats.usable_bytes += block->bytes;
    }
  if (paged_ == nullptr) return stats;
  paged_->for_each_free([&](const FreeRun& run) {
    const auto bytes = static_cast<std::size_t>(run.sectors * kSectorBytes);
    ++stats.free_blocks;
    if (bytes >= rounded) stats.usable_bytes += bytes;
  });
  return stats;
}

DeviceMemoryStats HeapReports::device_memory_stats() const {
  const MemoryInfo memory = device_memory();
  DeviceMemoryStats stats;
  stats.total = memory.total;
  stats.free = memory.free;
  const HeapLook look(mutex_);
  stats.reserved = held_bytes_;
  stats.outside = memory.total - std::min(memory.total, memory.free + held_bytes_);
  return stats;
}

void HeapReports::open_scope(OpenScope& scope) noexcept {
  const Lock lock(mutex_);
  recorder_.open_scope(scope);
}

MemoryStats HeapReports::scope_stats(const OpenScope& scope) const noexcept {
  const HeapLook look(mutex_);
  return recorder_.scope_stats(scope);
}

MemoryStats HeapReports::close_scope(OpenScope& scope) noexcept {
  const Lock lock(mutex_);
  const MemoryStats stats = recorder_.scope_stats(scope);
  recorder_.close_scope(scope);
  return stats;
}

void HeapReports::check_tags() const {
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

void HeapReports::check_streams() const {
  struct Bytes {
    std::int64_t live = 0;
    std::int64_t pending = 0;
  };
  std::map<const StreamHeap*, Bytes> walked;
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next)
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const auto bytes = static_cast<std::int64_t>(block->bytes);
      if (block->state == BlockState::active_allocated) walked[segment->owner].live += bytes;
      if (block->state == BlockState::active_pending_free) walked[segment->owner].pending += bytes;
    }
  const auto check_pool = [&](const StreamHeap& pool) {
    const auto found = walked.find(&pool);
    const Bytes bytes = found == walked.end() ? Bytes{} : found->second;
    require_equal(pool.ledger.live_bytes(), bytes.live, "the live bytes of stream", pool.stream.id);
    require_equal(pool.ledger.pending, bytes.pending, "the pending bytes of stream", pool.stream.id);
  };
  pools_.for_each(check_pool);
  private_pools_.for_each([&](const PrivatePool& pool) { pool.streams.for_each(check_pool); });
}

}  // namespace cistern
