// The specification of expandable segments: what is mapped where, and given back.

#include "reference_allocator.h"
#include "tests/byte_units.h"
#include "tests/model/number.h"

#include <algorithm>
#include <iterator>

namespace cistern::model {
namespace {

std::size_t page_bytes(bool small) { return (small ? 2 : 20) * kMega; }

std::size_t round_up(std::size_t value, std::size_t step) { return (value + step - 1) / step * step; }

// Blocks of equal state that follow each other, free or not mapped, are one.
void tidy(std::vector<ModelBlock>& blocks) {
  for (std::size_t i = 0; i + 1 < blocks.size();) {
    const bool both_free = blocks[i].free() && blocks[i + 1].free();
    const bool neither_mapped = !blocks[i].mapped && !blocks[i + 1].mapped;
    if (!both_free && !neither_mapped) {
      ++i;
      continue;
    }
    blocks[i].bytes += blocks[i + 1].bytes;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
}

// Makes [from, to) of a block a block of its own, that is mapped or is not.
void mark(std::vector<ModelBlock>& blocks, std::size_t index, std::uint64_t from, std::uint64_t to, bool mapped) {
  const ModelBlock whole = blocks[index];
  blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
  const auto insert = [&](std::uint64_t begin, std::uint64_t end, bool is_mapped) {
    if (begin == end) return;
    ModelBlock part;
    part.address = begin;
    part.bytes = end - begin;
    part.mapped = is_mapped;
    blocks.insert(blocks.begin() + static_cast<std::ptrdiff_t>(index++), part);
  };
  insert(whole.address, from, whole.mapped);
  insert(from, to, mapped);
  insert(to, whole.address + whole.bytes, whole.mapped);
  tidy(blocks);
}

}  // namespace

// An eighth more than the device has.
std::size_t ReferenceAllocator::range_bytes(bool small) const {
  return round_up(capacity_ + capacity_ / 8, page_bytes(small));
}

bool ReferenceAllocator::expands(int pool) const {
  return options_.policy == Policy::expandable && (pool == 0 || !follows_2_4());
}

// By size and address; of expandable ones that with less room to grow, as long as it lessens.
std::optional<ReferenceAllocator::Place> ReferenceAllocator::prefer_beside_ranges(std::vector<Place> candidates) {
  const auto block = [](const Place& place) -> const ModelBlock& { return place.first->blocks[place.second]; };
  std::sort(candidates.begin(), candidates.end(), [&](const Place& a, const Place& b) {
    return block(a).bytes != block(b).bytes ? block(a).bytes < block(b).bytes : block(a).address < block(b).address;
  });
  const auto room = [&](const Place& place) {
    const auto& blocks = place.first->blocks;
    const bool grows = place.second + 1 < blocks.size() && !blocks[place.second + 1].mapped;
    return block(place).bytes + (grows ? blocks[place.second + 1].bytes : 0);
  };
  std::size_t chosen = 0;
  if (options_.policy != Policy::expandable)
    while (chosen < candidates.size() && candidates[chosen].first->expandable()) ++chosen;
  else
    while (chosen + 1 < candidates.size() && candidates[chosen].first->expandable() &&
           room(candidates[chosen + 1]) < room(candidates[chosen]))
      ++chosen;
  if (chosen == candidates.size()) return std::nullopt;
  return candidates[chosen];
}

std::optional<ReferenceAllocator::Place> ReferenceAllocator::grow(std::size_t rounded, int stream, bool small,
                                                                  int pool) {
  if (rounded > range_bytes(small)) return std::nullopt;
  for (;;) {
    const auto place = find_room(rounded, stream, small, pool);
    if (!place) {
      add_range(stream, small, pool);
      continue;
    }
    auto [range, index] = *place;
    const ModelBlock& head = range->blocks[index];
    if (head.mapped && head.bytes >= rounded) return place;
    const std::size_t have = head.mapped ? head.bytes : 0;
    const std::size_t unmapped = head.mapped ? index + 1 : index;
    const std::size_t bytes = std::min(round_up(rounded - have, range->page), range->blocks[unmapped].bytes);
    if (held_ + bytes > capacity_) {
      drop_empty_ranges();
      return std::nullopt;
    }
    const std::uint64_t mapped = range->blocks[unmapped].address;
    map(range, unmapped, bytes);
    for (std::size_t i = 0; i < range->blocks.size(); ++i) {
      const ModelBlock& block = range->blocks[i];
      if (mapped >= block.address && mapped < block.address + block.bytes && block.bytes >= rounded)
        return Place(range, i);
    }
  }
}

// The lowest unmapped addresses from which on, or from the free block before them on, enough follows.
std::optional<ReferenceAllocator::Place> ReferenceAllocator::find_room(std::size_t rounded, int stream, bool small,
                                                                       int pool) {
  for (auto range = segments_.begin(); range != segments_.end(); ++range) {
    if (!range->expandable() || range->stream != stream || range->small != small || range->pool != pool) continue;
    for (std::size_t i = 0; i < range->blocks.size(); ++i) {
      if (range->blocks[i].mapped) continue;
      const std::size_t first = i > 0 && range->blocks[i - 1].free() ? i - 1 : i;
      std::size_t bytes = 0;
      for (std::size_t j = first; j < range->blocks.size() && !range->blocks[j].live && !range->blocks[j].pending; ++j)
        bytes += range->blocks[j].bytes;
      if (bytes >= rounded) return Place(range, first);
    }
  }
  return std::nullopt;
}

void ReferenceAllocator::add_range(int stream, bool small, int pool) {
  const std::size_t bytes = range_bytes(small);
  std::uint64_t address = kFirstRange;
  auto after = segments_.begin();
  while (after != segments_.end() && after->address < address + bytes) {
    if (after->expandable()) address = after->address + after->bytes;
    ++after;
  }
  ModelSegment range{address, bytes, stream, small, {ModelBlock{}}, pool, page_bytes(small)};
  range.blocks[0].address = address;
  range.blocks[0].bytes = bytes;
  range.blocks[0].mapped = false;
  segments_.insert(after, range);
}

void ReferenceAllocator::map(Segments::iterator range, std::size_t block, std::size_t bytes) {
  const std::uint64_t from = range->blocks[block].address;
  mark(range->blocks, block, from, from + bytes, true);
  held_ += bytes;
  ++stats_.num_device_alloc;
  change(&MemoryStats::reserved_bytes, range->small, number(bytes));
}

// Whole pages of free blocks, from the last of each range down, until so many bytes are reached.
template <class Chosen>
void ReferenceAllocator::release_pages(Chosen chosen, std::size_t most) {
  for (auto range = segments_.begin(); range != segments_.end(); ++range) {
    if (!range->expandable() || !chosen(*range)) continue;
    std::vector<std::uint64_t> blocks;
    for (const ModelBlock& block : range->blocks)
      if (block.free()) blocks.insert(blocks.begin(), block.address);
    for (const std::uint64_t address : blocks) {
      const std::size_t index = locate(address).second;
      const ModelBlock block = range->blocks[index];
      std::uint64_t from = range->address + round_up(block.address - range->address, range->page);
      const std::uint64_t end = block.address + block.bytes;
      const std::uint64_t to = range->address + (end - range->address) / range->page * range->page;
      if (from >= to || most == 0) continue;
      if (to - from > most) from = to - round_up(most, range->page);
      most -= std::min<std::size_t>(most, to - from);
      if (captured_.count(range->stream) != 0) continue;  // nobody may wait for it
      for (const auto& [stream, position] : queued_) done_[stream] = position;
      mark(range->blocks, index, from, to, false);
      held_ -= to - from;
      ++stats_.num_device_free;
      change(&MemoryStats::reserved_bytes, range->small, -number(to - from));
    }
  }
  drop_empty_ranges();
}

void ReferenceAllocator::drop_empty_ranges() {
  segments_.remove_if([](const ModelSegment& segment) {
    return segment.expandable() && segment.blocks.size() == 1 && !segment.blocks[0].mapped;
  });
}

void ReferenceAllocator::release_pages_of_flush(bool waits) {
  release_pages([&](const ModelSegment& range) { return gives_back(range.pool) && (waits || range.pool != 0); },
                kUnlimited);
}

void ReferenceAllocator::release_pages_of_trim(std::size_t most) {
  release_pages([&](const ModelSegment& range) { return gives_back(range.pool); }, most);
}

// Of MemPools without a use: a range goes to the nearest parent that has one when it is all free;
// without such a parent its free pages go back.
void ReferenceAllocator::move_leftover_ranges() {
  const auto heir = [&](int pool) {
    while (pool != 0 && uses(pool) == 0) pool = pools_[pool].parent;
    return pool;
  };
  const auto is_left = [&](const ModelSegment& range) {
    return range.expandable() && range.pool != 0 && uses(range.pool) == 0 && pools_[range.pool].is_mem_pool;
  };
  for (ModelSegment& range : segments_) {
    const auto& blocks = range.blocks;
    const bool is_used = std::any_of(blocks.begin(), blocks.end(), [](const auto& b) { return b.live || b.pending; });
    const bool has_memory = std::any_of(blocks.begin(), blocks.end(), [](const auto& b) { return b.mapped; });
    if (is_left(range) && !is_used && has_memory && heir(range.pool) != 0) range.pool = heir(range.pool);
  }
  release_pages([&](const ModelSegment& range) { return is_left(range) && heir(range.pool) == 0; }, kUnlimited);
}

}  // namespace cistern::model
