#include "allocator/page_table.h"

#include <stdexcept>
#include <string>

namespace cistern {
namespace {

[[noreturn]] void fail(PageTable::Handle handle, const char* what) {
  throw std::logic_error("handle " + std::to_string(handle) + ": " + what);
}

}  // namespace

PageTable::Arena PageTable::add_arena() {
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
  slots.resize(slots.size() + static_cast<std::size_t>(pages));
  return address;
}

void PageTable::cancel(Sectors address, std::int64_t pages) {
  const Arena arena = arena_of(address);
  if (address + page_.sectors(pages) != end_of(arena)) return;
  auto& slots = arenas_[static_cast<std::size_t>(arena)];
  slots.resize(slots.size() - static_cast<std::size_t>(pages));
}

void PageTable::map(Handle handle, Sectors address) {
  auto& slots = arenas_[static_cast<std::size_t>(arena_of(address))];
  const std::size_t first = index_of(address);
  for (std::int32_t i = 0; i < pages_of(handle); ++i) slots[first + static_cast<std::size_t>(i)] = {handle, i};
}

void PageTable::unmap(Handle handle, Sectors address) {
  auto& slots = arenas_[static_cast<std::size_t>(arena_of(address))];
  const std::size_t first = index_of(address);
  for (std::int32_t i = 0; i < pages_of(handle); ++i) slots[first + static_cast<std::size_t>(i)] = {};
}

void PageTable::cut_end(Arena arena) {
  auto& slots = arenas_[static_cast<std::size_t>(arena)];
  while (!slots.empty() && slots.back().handle < 0) slots.pop_back();
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

Sectors PageTable::mapping_begin(Sectors address) const {
  return page_.down(address) - page_.sectors(slot_at(address).page);
}

Sectors PageTable::at_home(Sectors address) const {
  const Slot slot = slot_at(address);
  return record(slot.handle).home + page_.sectors(slot.page) + page_.offset(address);
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
  for (Arena arena = 0; arena < arenas(); ++arena)
    for (const Slot& slot : slots_of(arena)) {
      if (slot.handle < 0) continue;
      if (slot.page < 0 || slot.page >= pages_of(slot.handle)) fail(slot.handle, "a page that it has not is mapped");
    }
}

}  // namespace cistern
