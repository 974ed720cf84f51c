#include "tools/recorded_pool.h"

#include "allocator/size_policy.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace cistern {
namespace {

// More than any device has, and little enough to be added to an address.
constexpr std::size_t kEndless = std::size_t{1} << 62;

const Block* free_first(const Segment& segment) {
  return segment.first != nullptr && segment.first->state == BlockState::inactive ? segment.first : nullptr;
}

// What maps of the run's gaps make of it, one after the other, until it holds the request.
SegmentGrowth grow_run(const AddressRange::Room& room, std::size_t bytes) {
  const AddressRange& range = *room.range;
  SegmentGrowth growth{room.gap.address, range.page_bytes, 0, 0};
  if (room.head != nullptr) {
    growth.address = room.head->address;
    growth.block_bytes = room.head->bytes;
  }
  auto behind = std::find_if(range.segments.begin(), range.segments.end(),
                             [&](const Segment* segment) { return segment->address >= room.gap.address; });
  for (std::uint64_t from = room.gap.address; growth.block_bytes < bytes; ++behind) {
    const std::uint64_t to = behind == range.segments.end() ? range.end() : (*behind)->address;
    const std::size_t mapped =
        std::min<std::size_t>(whole_pages(bytes - growth.block_bytes, range.page_bytes), to - from);
    growth.mapped_bytes += mapped;
    growth.block_bytes += mapped;
    if (from + mapped != to || behind == range.segments.end()) break;
    const Block* next = free_first(**behind);
    if (next == nullptr) break;
    growth.block_bytes += next->bytes;
    from = (*behind)->end();
  }
  return growth;
}

std::int64_t page_of(const SegmentInfo& segment) {
  return static_cast<std::int64_t>(page_bytes_of(segment.is_large ? PoolKind::large : PoolKind::small));
}

// The bytes of the whole pages between two places in an expandable segment, which begins with a page.
std::int64_t whole_pages_between(const SegmentInfo& segment, std::int64_t begin, std::int64_t end) {
  const std::int64_t page = page_of(segment);
  return std::max<std::int64_t>(end / page - begin / page - (begin % page == 0 ? 0 : 1), 0) * page;
}

}  // namespace

AddressRange& RecordedPool::range_of(const SegmentInfo& segment) {
  const bool is_known = segment.range_size != 0;
  for (AddressRange& range : ranges_)
    if (!is_known || range.address == segment.range_address) return range;
  AddressRange& range = ranges_.emplace_back();
  range.address = is_known ? segment.range_address : segment.address;
  range.bytes = is_known ? static_cast<std::size_t>(segment.range_size) : kEndless;
  return range;
}

void RecordedPool::add(const SegmentInfo& info) {
  arena_.reserve(info.blocks.size());
  Segment& segment = *arena_.take_segment();
  segment.address = info.address;
  segment.bytes = static_cast<std::size_t>(info.total_size);
  if (info.is_expandable) {
    AddressRange& range = range_of(info);
    range.address = std::min(range.address, info.address);
    segment.range = &range;
    range.insert(&segment);
  }
  for (const BlockInfo& each : info.blocks) {
    Block& block = *arena_.take_block();
    block.address = each.address;
    block.bytes = static_cast<std::size_t>(each.size);
    block.state = each.state;
    block.segment = &segment;
    block.previous = segment.last;
    (segment.last == nullptr ? segment.first : segment.last->next) = &block;
    segment.last = &block;
    if (each.state == BlockState::inactive) free_blocks_.insert(&block);
  }
}

SegmentGrowth RecordedPool::growth_for(std::size_t bytes, std::size_t page_bytes) {
  std::vector<AddressRange*> by_address;
  for (AddressRange& range : ranges_) by_address.push_back(&range);
  std::ranges::sort(by_address, {}, &AddressRange::address);
  for (AddressRange* range : by_address) {
    range->page_bytes = page_bytes;
    if (const std::optional<AddressRange::Room> room = range->room_for(bytes)) return grow_run(*room, bytes);
  }
  const std::size_t mapped = whole_pages(bytes, page_bytes);
  return {0, page_bytes, mapped, mapped};
}

std::int64_t releasable_bytes(const SegmentInfo& segment, const BlockInfo& block) {
  if (!segment.is_expandable) return segment.blocks.size() == 1 ? block.size : 0;
  const auto begin = static_cast<std::int64_t>(block.address - segment.address);
  return whole_pages_between(segment, begin, begin + block.size);
}

std::int64_t releasable_pages(const SegmentInfo& segment) {
  std::int64_t releasable = 0;
  for_each_run(segment,
               [&](std::int64_t begin, std::int64_t end) { releasable += whole_pages_between(segment, begin, end); });
  return releasable;
}

std::array<std::int64_t, 2> kept_of_run(const SegmentInfo& segment, std::int64_t begin, std::int64_t end) {
  if (!segment.is_expandable) return {begin == 0 && end == segment.total_size ? 0 : end - begin, 0};
  const std::int64_t pages = whole_pages_between(segment, begin, end);
  if (pages == 0) return {end - begin, 0};
  const std::int64_t page = page_of(segment);
  const std::int64_t before = (page - begin % page) % page;
  return {before, end - begin - pages - before};
}

}  // namespace cistern
