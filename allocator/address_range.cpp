#include "allocator/address_range.h"

#include <algorithm>

#include "stats/invariant.h"

namespace cistern {
namespace {

bool is_free(const Block* block) { return block != nullptr && block->state == BlockState::inactive; }

// A block at a segment's edge that a request may take with what lies beyond the edge.
Block* free_last(const Segment& segment) {
  return !segment.releasing && is_free(segment.last) ? segment.last : nullptr;
}

}  // namespace

Pages AddressRange::pages_in(const Block& block) const {
  const std::uint64_t first = page_at_or_after(block.address);
  const std::uint64_t last = page_at_or_before(block.address + block.bytes);
  return {first, first < last ? last - first : 0, page_bytes};
}

std::size_t AddressRange::index_of(std::uint64_t at) const {
  const auto place = std::lower_bound(segments.begin(), segments.end(), at,
                                      [](const Segment* segment, std::uint64_t key) { return segment->address < key; });
  return static_cast<std::size_t>(place - segments.begin());
}

// Whether the run that begins with the gap before segment `gap` (after the last one, if it is their
// count) holds so many bytes: gaps and free blocks, up to the first block that is not free.
bool AddressRange::holds(std::size_t gap, std::size_t wanted) const {
  std::size_t found = 0;
  for (std::uint64_t from = gap == 0 ? address : segments[gap - 1]->end();; ++gap) {
    const bool is_last = gap == segments.size();
    found += (is_last ? end() : segments[gap]->address) - from;
    if (found >= wanted || is_last) return found >= wanted;
    const Segment& behind = *segments[gap];
    if (behind.releasing || !is_free(behind.first)) return false;
    found += behind.first->bytes;
    if (found >= wanted) return true;
    if (behind.first->next != nullptr) return false;
    from = behind.end();
  }
}

std::optional<AddressRange::Room> AddressRange::room_for(std::size_t request_bytes) {
  for (std::size_t gap = 0; gap <= segments.size(); ++gap) {
    const std::uint64_t from = gap == 0 ? address : segments[gap - 1]->end();
    const std::uint64_t to = gap == segments.size() ? end() : segments[gap]->address;
    if (from == to) continue;
    Block* head = gap == 0 ? nullptr : free_last(*segments[gap - 1]);
    const std::size_t head_bytes = head == nullptr ? 0 : head->bytes;
    const std::size_t wanted = request_bytes > head_bytes ? request_bytes - head_bytes : 0;
    if (!holds(gap, wanted)) continue;
    return Room{this, head, {from, std::min<std::size_t>(whole_pages(wanted, page_bytes), to - from), page_bytes}};
  }
  return std::nullopt;
}

std::size_t AddressRange::unmapped_behind(const Segment& segment) const {
  const std::size_t next_index = index_of(segment.end());
  return (next_index == segments.size() ? end() : segments[next_index]->address) - segment.end();
}

Segment* AddressRange::touching_before(const Segment& segment) const {
  const std::size_t index = index_of(segment.address);
  if (index == 0) return nullptr;
  Segment* before = segments[index - 1];
  return !before->releasing && before->end() == segment.address ? before : nullptr;
}

Segment* AddressRange::touching_after(const Segment& segment) const {
  const std::size_t index = index_of(segment.end());
  if (index == segments.size()) return nullptr;
  Segment* after = segments[index];
  return !after->releasing && after->address == segment.end() ? after : nullptr;
}

bool AddressRange::is_wholly_free() const {
  return std::all_of(segments.begin(), segments.end(), [](const Segment* segment) {
    return !segment->releasing && segment->first == segment->last && is_free(segment->first);
  });
}

void AddressRange::reserve_pieces(std::size_t more_pages) {
  std::size_t pages = more_pages;
  for (const Segment* segment : segments) pages += segment->bytes / page_bytes;
  if (pages > segments.capacity()) segments.reserve(std::max(pages, 2 * segments.capacity()));
}

void AddressRange::insert(Segment* segment) noexcept {
  segments.insert(segments.begin() + static_cast<std::ptrdiff_t>(index_of(segment->address)), segment);
}

void AddressRange::erase(const Segment* segment) noexcept {
  segments.erase(segments.begin() + static_cast<std::ptrdiff_t>(index_of(segment->address)));
}

void AddressRange::check() const {
  std::uint64_t reached = address;
  const Segment* previous = nullptr;
  for (const Segment* segment : segments) {
    require(segment->range == this, "address range: a segment of another range");
    require(segment->address >= reached && segment->end() <= end(), "address range: segments out of order or place");
    require((segment->address - address) % page_bytes == 0 && segment->bytes % page_bytes == 0 && segment->bytes != 0,
            "address range: segments are whole pages");
    require(previous == nullptr || previous->releasing || segment->releasing || previous->end() != segment->address,
            "address range: mapped pages that follow each other are one segment");
    require(segment->releasing || (segment->owner == owner && segment->kind == kind), "address range: owner");
    reached = segment->end();
    previous = segment;
  }
}

}  // namespace cistern
