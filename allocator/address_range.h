#pragma once

// AddressRange: a reserved piece of address space of one stream's pool, of which pages are mapped
// where they are needed. The parts that are mapped are its segments, each as long as pages follow
// each other; between them is nothing.
// Plain data and questions about it. Not thread-safe: changed by who has the heap's lock, and read under that or the
// lock of the stream that it belongs to.

#include "allocator/block.h"
#include "allocator/pages.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cistern {

struct AddressRange {
  std::uint64_t address = 0;
  std::size_t bytes = 0;       // a multiple of page_bytes
  std::size_t page_bytes = 0;  // of one physical handle
  PoolKind kind = PoolKind::small;
  StreamHeap* owner = nullptr;
  // Its segments' blocks are found by page (Segment::is_found_by_page): there is room for entries up to `known_end`.
  bool is_found_by_page = false;
  std::uint64_t known_end = 0;
  AddressRange* next = nullptr;  // of the heap's, by address
  // By address: what is mapped, and what is on its way there or back, which has no block that
  // anybody may use (Segment::releasing).
  std::vector<Segment*> segments;

  [[nodiscard]] std::uint64_t end() const { return address + bytes; }
  [[nodiscard]] std::uint64_t page_at_or_after(std::uint64_t at) const {
    return address + whole_pages(at - address, page_bytes);
  }
  [[nodiscard]] std::uint64_t page_at_or_before(std::uint64_t at) const {
    return address + (at - address) / page_bytes * page_bytes;
  }
  // The whole pages that lie in a block.
  [[nodiscard]] Pages pages_in(const Block& block) const;

  // A run of free blocks and unmapped pages that holds a request, as far as its first gap.
  struct Room {
    AddressRange* range = nullptr;
    Block* head = nullptr;  // the free block that ends where the gap begins, or null
    Pages gap;              // what of it to map
  };
  // The lowest place where `bytes` fit into free blocks and unmapped pages that follow each other.
  [[nodiscard]] std::optional<Room> room_for(std::size_t request_bytes);
  // The unmapped bytes that follow the segment.
  [[nodiscard]] std::size_t unmapped_behind(const Segment& segment) const;
  // The mapped segment that ends, or begins, where this one begins or ends; null if none does.
  [[nodiscard]] Segment* touching_before(const Segment& segment) const;
  [[nodiscard]] Segment* touching_after(const Segment& segment) const;
  // Whether all its memory is free, and none on its way.
  [[nodiscard]] bool is_wholly_free() const;

  // Makes capacity for all segments that there can be when so many pages come: one a page. Throws
  // std::bad_alloc, unchanged.
  void reserve_pieces(std::size_t more_pages);
  // Requires: capacity for it.
  void insert(Segment* segment) noexcept;
  void erase(const Segment* segment) noexcept;
  // Verifies order and extents: throws std::logic_error.
  void check() const;

 private:
  [[nodiscard]] std::size_t index_of(std::uint64_t at) const;  // of the first segment at or after it
  [[nodiscard]] bool holds(std::size_t gap, std::size_t bytes) const;
};

// What a flush would give back of a free block.
[[nodiscard]] inline std::size_t releasable_bytes(const Block& block) {
  if (const AddressRange* range = block.segment->range) return range->pages_in(block).bytes;
  return block.is_split() ? 0 : block.bytes;
}

}  // namespace cistern
