#pragma once

// Physical handles, the addresses at which they are mapped, and the one of these that is each handle's home.
//
// A handle is 2^k pages that the driver made at once, and indivisible: it is mapped whole. It stays mapped where it
// was mapped, so one handle shows at several addresses; free bytes exist at its home alone. Addresses of an arena
// are handed out in order, and again when nothing is mapped there any more: as the end, or as a hole.
// Invariant: a handle with a home is mapped there, whole and in order.
// Complexity: look-ups O(1), pieces O(pages), a hole O(1) pages more than it has, audit O(slots).
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/page_size.h"

namespace cistern {

class PageTable {
 public:
  using Handle = std::int32_t;
  using Arena = std::int32_t;

  struct Slot {  // what is mapped in a page of an arena
    Handle handle = -1;
    std::int32_t page = 0;  // of the handle
    friend bool operator==(const Slot&, const Slot&) = default;
  };

  explicit PageTable(PageSize page) : page_(page) {}

  [[nodiscard]] PageSize page() const { return page_; }
  [[nodiscard]] std::int64_t pages() const { return pages_; }  // of all handles
  // Pages of arenas in which one is mapped.
  [[nodiscard]] std::int64_t mapped_pages() const { return mapped_pages_; }

  // Throws std::bad_alloc, unchanged, also if there are as many as there are addresses for.
  [[nodiscard]] Arena add_arena();
  [[nodiscard]] std::int32_t arenas() const { return static_cast<std::int32_t>(arenas_.size()); }
  static constexpr std::int32_t kMostArenas = (std::int32_t{1} << (kAddressBits - kArenaBits)) - 1;
  [[nodiscard]] static Sectors begin_of(Arena arena) { return Sectors{arena + 1} << kArenaBits; }
  [[nodiscard]] Sectors end_of(Arena arena) const;
  [[nodiscard]] static Arena arena_of(Sectors address) { return static_cast<Arena>(address >> kArenaBits) - 1; }

  // A handle that is mapped nowhere yet; and its opposite, for one that is mapped nowhere. To remove takes no host
  // memory. Throws std::bad_alloc, unchanged.
  [[nodiscard]] Handle add_handle(std::int32_t pages);
  void remove_handle(Handle handle) noexcept;
  // Calls visit(handle) for each that has a home.
  template <class Visit>
  void for_each_handle(Visit&& visit) const {
    for (std::size_t i = 0; i < handles_.size(); ++i)
      if (handles_[i].home != kNoHome) visit(static_cast<Handle>(i));
  }
  // Calls visit(handle, address) for each mapping, by address.
  template <class Visit>
  void for_each_mapping(Visit&& visit) const;
  [[nodiscard]] std::int32_t pages_of(Handle handle) const { return record(handle).pages; }
  [[nodiscard]] Sectors sectors_of(Handle handle) const { return page_.sectors(pages_of(handle)); }
  // Requires: it has one.
  [[nodiscard]] Sectors home_of(Handle handle) const { return record(handle).home; }

  // Addresses behind the arena's end for so many pages: nothing is mapped there yet. Throws std::bad_alloc, unchanged.
  [[nodiscard]] Sectors reserve(Arena arena, std::int64_t pages);
  // So many pages side by side before the arena's end that nothing is mapped in and nobody reserved; nothing: a short
  // search, which goes on where the last one ended, found none.
  [[nodiscard]] std::optional<Sectors> reserve_hole(Arena arena, std::int64_t pages);
  // Gives back what these returned and nothing was mapped in.
  void cancel(Sectors address, std::int64_t pages);
  // Requires: reserved, and empty.
  void map(Handle handle, Sectors address);
  // The opposite. Requires: the handle is mapped there; it has no home, or another.
  void unmap(Handle handle, Sectors address);
  // Pages of the arena, up to its end.
  [[nodiscard]] std::int64_t slots(Arena arena) const { return static_cast<std::int64_t>(slots_of(arena).size()); }
  // Gives up the addresses behind the arena's last mapping. Requires: none of them is reserved for a map under way.
  void cut_end(Arena arena);
  // Requires: the handle is mapped there.
  void move_home(Handle handle, Sectors address);

  // Whether something is mapped in all pages of the range.
  [[nodiscard]] bool is_mapped(Sectors address, Sectors count) const;
  // Requires of these: is_mapped.
  [[nodiscard]] Slot slot_at(Sectors address) const;
  [[nodiscard]] Handle handle_at(Sectors address) const { return slot_at(address).handle; }
  // Whether the handle's mapping begins there.
  [[nodiscard]] bool maps(Handle handle, Sectors address) const;
  // Where the mapping of the handle that shows at `address` begins.
  [[nodiscard]] Sectors mapping_begin(Sectors address) const;
  // The same byte at home.
  [[nodiscard]] Sectors at_home(Sectors address) const;
  // Calls visit(address at home, sectors) for each piece of the range that is one piece at home,
  // as long as it returns true. Returns whether it always did.
  template <class Visit>
  bool for_each_piece(Sectors address, Sectors count, Visit&& visit) const;

  // Calls visit(handle) for each mapping that has some of the range.
  template <class Visit>
  void for_each_handle_in(Sectors address, Sectors count, Visit&& visit) const {
    for (const Sectors end = address + count; address < end;) {
      const Handle handle = handle_at(address);
      visit(handle);
      address = mapping_begin(address) + sectors_of(handle);
    }
  }

  // Calls visit(handle, address) for each mapping that lies in the range whole.
  template <class Visit>
  void for_each_covered(Sectors address, Sectors count, Visit&& visit) const {
    const Sectors end = address + count;
    for (Sectors at = address; at < end;) {
      const Handle handle = handle_at(at);
      const Sectors mapped = mapping_begin(at);
      at = mapped + sectors_of(handle);
      if (mapped >= address && at <= end) visit(handle, mapped);
    }
  }

  // Whether any mapping does. O(1): the second one does, or is the last.
  [[nodiscard]] bool covers_any(Sectors address, Sectors count) const;

  // Throws std::logic_error where the invariant does not hold.
  void audit() const;

 private:
  static constexpr Handle kEmpty = -1;     // a slot in which nothing is mapped
  static constexpr Handle kReserved = -2;  // nor is anything yet
  static constexpr Sectors kNoHome = -1;

  struct Record {
    std::int32_t pages = 0;  // 0: the number is unused
    Sectors home = kNoHome;
  };

  [[nodiscard]] const Record& record(Handle handle) const { return handles_[static_cast<std::size_t>(handle)]; }
  [[nodiscard]] Record& record(Handle handle) { return handles_[static_cast<std::size_t>(handle)]; }
  [[nodiscard]] const std::vector<Slot>& slots_of(Arena arena) const {
    return arenas_[static_cast<std::size_t>(arena)];
  }
  [[nodiscard]] std::size_t index_of(Sectors address) const {
    return static_cast<std::size_t>(page_.whole(address - begin_of(arena_of(address))));
  }

  // Of an arena, besides its slots: how many are empty, and where the next search for a hole begins.
  struct Holes {
    std::int64_t empty = 0;
    std::size_t next = 0;
  };
  [[nodiscard]] Holes& holes_of(Sectors address) { return holes_[static_cast<std::size_t>(arena_of(address))]; }
  void set_slots(Sectors address, std::int64_t pages, Handle handle);

  PageSize page_;
  std::int64_t pages_ = 0;
  std::int64_t mapped_pages_ = 0;
  std::vector<Record> handles_;
  std::vector<Handle> unused_;
  std::vector<std::vector<Slot>> arenas_;
  std::vector<Holes> holes_;  // of arenas
};

template <class Visit>
void PageTable::for_each_mapping(Visit&& visit) const {
  for (Arena arena = 0; arena < arenas(); ++arena)
    for (std::size_t i = 0; i < slots_of(arena).size(); ++i)
      if (const Slot& slot = slots_of(arena)[i]; slot.handle >= 0 && slot.page == 0)
        visit(slot.handle, begin_of(arena) + page_.sectors(static_cast<std::int64_t>(i)));
}

template <class Visit>
bool PageTable::for_each_piece(Sectors address, Sectors count, Visit&& visit) const {
  Sectors begin = 0;
  Sectors length = 0;
  for (const Sectors end = address + count; address < end;) {
    const Sectors part = std::min(end - address, page_.sectors() - page_.offset(address));
    const Sectors home = at_home(address);
    if (length > 0 && home == begin + length) {
      length += part;
    } else {
      if (length > 0 && !visit(begin, length)) return false;
      begin = home;
      length = part;
    }
    address += part;
  }
  return length == 0 || visit(begin, length);
}

}  // namespace cistern
