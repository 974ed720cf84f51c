// What a heap shows of itself: its part of a snapshot.

#include "allocator/address_range.h"
#include "allocator/heap_reports.h"
#include "allocator/segment_list.h"
#include "stats/fixed_text_format.h"
#include "stats/json_writer.h"
#include "stats/snapshot_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// A segment without its blocks, each of which goes to visit(BlockInfo).
template <class Visit>
SegmentInfo describe(const Segment& segment, int device, Visit&& visit) {
  SegmentInfo info = describe(image_of(segment), device);
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    const BlockInfo described = describe(image_of(*block));
    visit(described);
    count(info, described);
  }
  return info;
}

// The index of a stack in a table in which others come before the heap's own.
StackIndex behind(StackIndex first, StackIndex stack) { return stack == kNoStack ? kNoStack : first + stack; }

SegmentInfo describe(const Segment& segment, int device) {
  return describe(segment, device, [](const BlockInfo&) {});
}

// As one segment those of a range that continue each other; returns how many. Requires: there is one.
std::size_t write(JsonWriter& json, std::span<Segment* const> segments, int device, StackIndex first_stack) {
  SegmentInfo info = describe(*segments[0], device);
  std::size_t joined = 1;
  for (; joined < segments.size() && segments[joined]->first != nullptr; ++joined) {
    const SegmentInfo next = describe(*segments[joined], device);
    if (!continues(info, next)) break;
    lengthen(info, next);
  }
  info.stack = behind(first_stack, info.stack);
  begin_segment(json, info);
  for (const Segment* segment : segments.first(joined))
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      BlockInfo described = describe(image_of(*block));
      described.stack = behind(first_stack, described.stack);
      write_block(json, described);
    }
  end_segment(json);
  return joined;
}

}  // namespace

HistoryInfo HeapReports::history_info() const {
  const HeapLook look(mutex_);
  return history_.info();
}

std::vector<SegmentInfo> HeapReports::segments_of(PoolId id) const {
  const HeapLook look(mutex_);
  const PrivatePool* pool = nullptr;
  if (!id.is_default()) {
    require_private(id);
    pool = private_pools_.find(id);
    if (pool == nullptr)
      throw InvalidArgument(fmt::format("pool {} on device {}: there is none of that id", to_string(id), device_));
  }
  std::vector<SegmentInfo> segments;
  const std::vector<FreeRun> free_runs = pool == nullptr ? free_runs_by_stream() : std::vector<FreeRun>();
  for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) {
    if (segment->owner->home != pool) continue;
    std::vector<BlockInfo> blocks;
    SegmentInfo info = describe(*segment, device_, [&blocks](const BlockInfo& block) { blocks.push_back(block); });
    // Stacks and tags are named in whole snapshots alone.
    info.stack = kNoStack;
    for (BlockInfo& block : blocks) block.stack = kNoStack, block.tag = kNoTag;
    if (segment->is_paged()) {
      add_paged_segments(segments, *segment, std::move(blocks), free_runs);
      continue;
    }
    info.blocks = std::move(blocks);
    segments.push_back(std::move(info));
  }
  std::sort(segments.begin(), segments.end(),
            [](const SegmentInfo& a, const SegmentInfo& b) { return a.address < b.address; });
  return segments;
}

void HeapReports::add_to(Snapshot& snapshot, SnapshotStacks& stacks) {
  DeviceCut cut;
  // Memory for the copy is taken without the lock: until it suffices.
  for (DeviceCut::Size size; !take_cut_into(cut, size);) cut.reserve(size);
  cut.move_to(snapshot, device_, stacks, history_.clock());
}

// False: there is no room for it, which takes `size`.
bool HeapReports::take_cut_into(DeviceCut& cut, DeviceCut::Size& size) {
  const HeapLook look(mutex_);
  size = size_of_cut();
  if (!cut.has_room_for(size)) return false;
  take_cut(cut);
  // Of this snapshot, so the next one shows it.
  recorder_.snapshot_taken();
  return true;
}

DeviceCut::Size HeapReports::size_of_cut() const {
  return {arena_.segments(), BlockImages::size_for(arena_), history_.size(), size_of_paged_cut()};
}

// In whatever order is fastest: from end to end of their arena, unless most of it is free (see BlockImages).
template <class Visit>
void HeapReports::for_each_segment(Visit&& visit) const {
  if (arena_.segment_places() / kCopiesAStep > arena_.segments()) {
    for (const Segment* segment = segments_; segment != nullptr; segment = segment->next) visit(*segment);
    return;
  }
  arena_.for_each_segment_place([&](const Segment& segment) {
    if (segment.first != nullptr) visit(segment);
  });
}

// A segment that is on its way back to the driver is gone from the history, and so from the rest,
// too: its address may belong to another already.
void HeapReports::count_as_gone(const Segment& segment, MemoryStats& stats) {
  Recorder::count_release(stats, segment.kind, static_cast<std::int64_t>(segment.bytes), segment.oversize);
}

MemoryStats HeapReports::stats_of_cut() const {
  MemoryStats stats = recorder_.stats();
  for_each_segment([&](const Segment& segment) {
    if (segment.going_back) count_as_gone(segment, stats);
  });
  return stats;
}

void HeapReports::take_cut(DeviceCut& cut) const {
  cut.stats = recorder_.stats();
  for_each_segment([&](const Segment& segment) {
    if (segment.is_paged()) return;
    if (segment.going_back) return count_as_gone(segment, cut.stats);
    cut.segments.push_back(image_of(segment));
    cut.first.push_back(segment.first);
  });
  cut_paged(cut);
  cut.blocks.copy(arena_, cut.first);
  history_.copy_to(cut.history);
}

// By address: those of address ranges are in order; others are in no list while they are not going back.
void HeapReports::stream_segments(JsonWriter& json, StackIndex first_stack) const {
  SegmentList others;
  for (Segment* segment = segments_; segment != nullptr; segment = segment->next)
    if (segment->range == nullptr && !segment->going_back && !segment->is_paged()) others.push_back(segment);
  others.sort([](const Segment& a, const Segment& b) { return a.address < b.address; });
  const auto write_one = [&](Segment* segment) { write(json, {&segment, 1}, device_, first_stack); };
  for (const AddressRange* range = ranges_; range != nullptr; range = range->next) {
    while (!others.empty() && others.first()->address < range->address) write_one(others.pop_front());
    for (std::span<Segment* const> rest = range->segments; !rest.empty();)
      rest = rest.subspan(rest[0]->first == nullptr ? 1 : write(json, rest, device_, first_stack));
  }
  stream_paged(json, first_stack, [&](std::uint64_t address) {
    while (!others.empty() && others.first()->address < address) write_one(others.pop_front());
  });
  while (Segment* segment = others.pop_front()) write_one(segment);
}

void HeapReports::stream_history(JsonWriter& json, StackIndex first_stack) {
  const TickClock::Conversion time(history_.clock());
  history_.for_each_shown(time, [&](TraceEntry entry, std::string_view text) {
    entry.stack = behind(first_stack, entry.stack);
    write_entry(json, entry, text);
  });
  recorder_.snapshot_taken();
}

// As addresses: to find their names takes host memory.
void HeapReports::stream_stacks(JsonWriter& json) const {
  constexpr std::uintptr_t kShortAddress = std::uintptr_t{1} << 48;
  history_.for_each_stack([&json](std::span<const std::uintptr_t> addresses) {
    json.begin_array();
    for (const std::uintptr_t address : addresses) {
      FrameInfo frame;
      frame.address = address;
      // Short enough for a string that takes no host memory, as addresses of code are.
      if (address < kShortAddress) {
        FixedText<16> text;
        append(text, "{:#x}", address);
        frame.name = std::string_view(text);
      }
      write_frame(json, frame);
    }
    json.end_array();
  });
}

}  // namespace cistern
