#pragma once

// Fragments: free bytes at one edge of pages that are free in part, found by size.
//
// Which sizes there are stands in room that is its caller's, for most streams have no fragments.
// Complexity: O(log n) to add, remove and find one; the next size that there is O(1). Not thread-safe: the heap's lock
// is held.

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <set>
#include <span>

#include "allocator/growing_table.h"
#include "allocator/page_size.h"
#include "allocator/page_table.h"

namespace cistern {

// Free bytes at an edge of a page, in part of it.
struct Fragment {
  Sectors sectors = 0;
  Sectors address = 0;  // at home
  PageTable::Slot slot;

  // By size, then address.
  friend bool operator<(const Fragment& a, const Fragment& b) {
    return a.sectors != b.sectors ? a.sectors < b.sectors : a.address < b.address;
  }
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// Those that reach the end of their page, or those that begin it.
class Fragments {
 public:
  // Room for so many lists, without pages until they are used. Throws std::bad_alloc.
  using Room = GrowingTable<std::uint64_t>;
  [[nodiscard]] static Room room_for(PageSize page, std::size_t lists);
  // Of pages of this size, in that place of a room, which outlives it and is nobody else's. What is added is kept in
  // `memory`.
  Fragments(PageSize page, std::pmr::memory_resource* memory, Room& room, std::size_t place);
  Fragments(const Fragments&) = delete;
  Fragments& operator=(const Fragments&) = delete;

  // Requires: less than a page; it is not there. Throws std::bad_alloc if `memory` does, unchanged.
  void add(const Fragment& fragment);
  // Requires: it is there.
  void remove(const Fragment& fragment) noexcept;

  // The least size of at least one sector and `sectors` of which there are any.
  [[nodiscard]] std::optional<Sectors> size_from(Sectors sectors) const;
  // Of just this size: the lowest address at or behind this one; nothing: there is none.
  [[nodiscard]] const Fragment* first_of(Sectors sectors, Sectors address) const;

  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  [[nodiscard]] bool contains(const Fragment& fragment) const { return parts_.contains(fragment); }
  // Throws std::logic_error unless the sizes are those of what is there. O(n).
  void audit() const;

 private:
  static constexpr std::size_t kBits = 64;

  std::pmr::set<Fragment> parts_;
  // A bit for each size of which there are any, and one for each of these words that is not empty.
  std::span<std::uint64_t> sizes_;
  std::span<std::uint64_t> words_;
};

// Lists of fragments, which are looked at as if they were one.
using FragmentLists = std::span<const Fragments* const>;

}  // namespace cistern
