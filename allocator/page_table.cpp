#include "allocator/page_table.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

namespace cistern {
namespace {

[[noreturn]] void fail(PageTable::Handle handle, const char* what) {
  throw std::logic_error("handle " + std::to_string(handle) + ": " + what);
}

}  // namespace

PageTable::Arena PageTable::add_arena() {
  if (arenas() == kMostArenas) throw std::bad_alloc();
  holes_.resize(arenas_.size() + 1);
  arenas_.emplace_back();
  return arenas() - 1;
}

Sectors PageTable::end_of(Arena arena) const {
  return begin_of(arena) + page_.sectors(static_cast<std::int64_t>(slots_of(arena).size()));
}

PageTable::Handle PageTable::add_handle(std::int32_t pages) {
  if (unused_.capacity() <= handles_.size()) unused_.reserve(2 * handles_.size() + 16);
  Handle handle = static_cast<Handle>(handles_.size());
  if (unused_.empty()) {
    handles_.push_back({pages});
  } else {
    handle = unused_.back();
    unused_.pop_back();
    record(handle) = {pages};
  }
  pages_ += pages;
  return handle;
}

void PageTable::remove_handle(Handle handle) noexcept {
  pages_ -= pages_of(handle);
  record(handle) = {};
  unused_.push_back(handle);
}

Sectors PageTable::reserve(Arena arena, std::int64_t pages) {
  const Sectors address = end_of(arena);
  auto& slots = arenas_[static_cast<std::size_t>(arena)];
  slots.resize(slots.size() + static_cast<std::size_t>(pages), Slot{kReserved, 0});
  return address;
}

std::optional<Sectors> PageTable::reserve_hole(Arena arena, std::int64_t pages) {
  constexpr std::int64_t kMostLookedAt = 4096;
  Holes& holes = holes_[static_cast<std::size_t>(arena)];
  if (holes.empty < pages) return std::nullopt;
  const std::vector<Slot>& slots = slots_of(arena);
  std::int64_t found = 0;
  const auto most = static_cast<std::int64_t>(slots.size()) + pages;
  for (std::int64_t looked_at = 0; looked_at < std::min(most, kMostLookedAt + 16 * pages); ++looked_at) {
    if (holes.next >= slots.size()) holes.next = 0, found = 0;
    found = slots[holes.next++].handle == kEmpty ? found + 1 : 0;
    if (found < pages) continue;
    const Sectors address = begin_of(arena) + page_.sectors(static_cast<std::int64_t>(holes.next) - pages);
    set_slots(address, pages, kReserved);
    holes.empty -= pages;
    return address;
  }
  return std::nullopt;
}

void PageTable::set_slots(Sectors address, std::int64_t pages, Handle handle) {
  auto& slots = arenas_[static_cast<std::size_t>(arena_of(address))];
  const auto first = slots.begin() + static_cast<std::ptrdiff_t>(index_of(address));
  std::fill(first, first + static_cast<std::ptrdiff_t>(pages), Slot{handle, 0});
}

void PageTable::cancel(Sectors address, std::int64_t pages) {
  const Arena arena = arena_of(address);
  if (address + page_.sectors(pages) != end_of(arena)) {
    set_slots(address, pages, kEmpty);
    holes_of(address).empty += pages;
    return;
  }
  auto& slots = arenas_[static_cast<std::size_t>(arena)];
  slots.resize(slots.size() - static_cast<std::size_t>(pages));
}

void PageTable::map(Handle handle, Sectors address) {
  auto& slots = arenas_[static_cast<std::size_t>(arena_of(address))];
  const std::size_t first = index_of(address);
  for (std::int32_t i = 0; i < pages_of(handle); ++i) slots[first + static_cast<std::size_t>(i)] = {handle, i};
  mapped_pages_ += pages_of(handle);
}

void PageTable::unmap(Handle handle, Sectors address) {
  set_slots(address, pages_of(handle), kEmpty);
  holes_of(address).empty += pages_of(handle);
  mapped_pages_ -= pages_of(handle);
}

void PageTable::cut_end(Arena arena) {
  auto& slots = arenas_[static_cast<std::size_t>(arena)];
  while (!slots.empty() && slots.back().handle == kEmpty) {
    slots.pop_back();
    --holes_[static_cast<std::size_t>(arena)].empty;
  }
}

void PageTable::move_home(Handle handle, Sectors address) { record(handle).home = address; }

bool PageTable::is_mapped(Sectors address, Sectors count) const {
  const Arena arena = arena_of(address);
  if (arena < 0 || arena >= arenas() || address < begin_of(arena) || address + count > end_of(arena)) return false;
  for (Sectors at = address; at < address + count; at = page_.up(at + 1))
    if (slot_at(at).handle < 0) return false;
  return true;
}

PageTable::Slot PageTable::slot_at(Sectors address) const { return slots_of(arena_of(address))[index_of(address)]; }

bool PageTable::maps(Handle handle, Sectors address) const {
  return address < end_of(arena_of(address)) && slot_at(address) == Slot{handle, 0};
}

Sectors PageTable::mapping_begin(Sectors address) const {
  return page_.down(address) - page_.sectors(slot_at(address).page);
}

Sectors PageTable::at_home(Sectors address) const {
  const Slot slot = slot_at(address);
  return record(slot.handle).home + page_.sectors(slot.page) + page_.offset(address);
}

bool PageTable::covers_any(Sectors address, Sectors count) const {
  if (count < page_.sectors()) return false;
  const Sectors end = address + count;
  for (Sectors at = address; at < end;) {
    const Sectors mapped = mapping_begin(at);
    at = mapped + sectors_of(handle_at(at));
    if (mapped >= address && at <= end) return true;
  }
  return false;
}

void PageTable::audit() const {
  std::int64_t pages = 0;
  for (Handle handle = 0; handle < static_cast<Handle>(handles_.size()); ++handle) {
    const auto& [count, home] = record(handle);
    pages += count;
    if (home == kNoHome) continue;
    if (count == 0) fail(handle, "has a home and no page");
    if (!is_mapped(home, page_.sectors(count))) fail(handle, "is not mapped at home");
    for (std::int32_t i = 0; i < count; ++i)
      if (slot_at(home + page_.sectors(i)) != Slot{handle, i}) fail(handle, "another page is mapped at its home");
  }
  if (pages != pages_) throw std::logic_error("the count of pages is not their number");
  std::int64_t mapped = 0;
  for (Arena arena = 0; arena < arenas(); ++arena) {
    std::int64_t empty = 0;
    for (const Slot& slot : slots_of(arena)) {
      if (slot.handle == kEmpty) ++empty;
      if (slot.handle < 0) continue;
      ++mapped;
      if (slot.page < 0 || slot.page >= pages_of(slot.handle)) fail(slot.handle, "a page that it has not is mapped");
    }
    if (empty != holes_[static_cast<std::size_t>(arena)].empty)
      throw std::logic_error("the count of empty pages of an arena is not their number");
  }
  if (mapped != mapped_pages_) throw std::logic_error("the count of mapped pages is not their number");
}

}  // namespace cistern
