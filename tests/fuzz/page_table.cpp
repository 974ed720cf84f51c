// Handles and where they are mapped, beside a map of single pages: arenas grow, have holes and become shorter, handles
// are mapped at several addresses, move home and go.

#include "allocator/page_table.h"

#include "tests/allocator/page_sizes.h"
#include "tests/fuzz/property.h"
#include "tests/fuzz/steps.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr std::size_t kMostArenas = 3;
constexpr std::size_t kMostHandles = 24;

class Program {
 public:
  explicit Program(Steps steps) : steps_(steps) { add_arena(); }

  void run() {
    while (steps_.more()) {
      step();
      compare_counts();
      ask();
    }
    compare_all();
  }

 private:
  using Handle = PageTable::Handle;
  using Arena = PageTable::Arena;
  using Slot = PageTable::Slot;

  struct Known {
    std::int32_t pages = 0;
    std::optional<Sectors> home;
    std::set<Sectors> mapped_at;
  };
  struct Reserved {
    Sectors address = 0;
    Handle handle = -1;
  };

  void step() {
    const std::uint64_t kind = steps_.byte();
    const auto arena = static_cast<Arena>(kind / 16 % ends_.size());
    switch (kind % 16) {
      case 0:
        if (ends_.size() < kMostArenas) add_arena();
        return;
      case 1:
      case 2:
      case 3:
        return add_handle(1 << kind / 16 % 4);
      case 4:
      case 5:
        return reserve(arena);
      case 6:
      case 7:
        return reserve_hole(arena);
      case 8:
      case 9:
      case 10:
        return map();
      case 11:
        return cancel();
      case 12:
        return move_home();
      case 13:
        return unmap();
      case 14:
        return remove();
      default:
        return cut_end(arena);
    }
  }
  void add_arena() {
    const Arena arena = table_.add_arena();
    require(arena == static_cast<Arena>(ends_.size()), "arenas are numbered");
    ends_.push_back(PageTable::begin_of(arena));
  }
  void add_handle(std::int32_t pages) {
    if (handles_.size() == kMostHandles) return;
    const Handle handle = table_.add_handle(pages);
    require(handles_.emplace(handle, Known{pages, {}, {}}).second, "a handle has a number of its own");
  }
  [[nodiscard]] std::optional<Handle> pick() {
    if (handles_.empty()) return std::nullopt;
    return std::next(handles_.begin(), static_cast<std::ptrdiff_t>(steps_.byte() % handles_.size()))->first;
  }
  [[nodiscard]] Sectors& end_of(Sectors address) {
    return ends_[static_cast<std::size_t>(PageTable::arena_of(address))];
  }

  void reserve(Arena arena) {
    const auto handle = pick();
    if (!handle) return;
    const std::int32_t pages = handles_[*handle].pages;
    const Sectors address = table_.reserve(arena, pages);
    require(address == ends_[static_cast<std::size_t>(arena)], "addresses behind the end are handed out");
    end_of(address) += kPageOf8.sectors(pages);
    note_reserved(address, *handle);
  }
  void reserve_hole(Arena arena) {
    const auto handle = pick();
    if (!handle) return;
    const std::int32_t pages = handles_[*handle].pages;
    const auto found = table_.reserve_hole(arena, pages);
    require(found.has_value() == has_hole(arena, pages), "whether there is a hole");
    if (!found) return;
    require(PageTable::arena_of(*found) == arena && *found + kPageOf8.sectors(pages) <= end_of(*found),
            "a hole is in the arena");
    require(empty_pages(*found, pages) == pages, "a hole is empty");
    note_reserved(*found, *handle);
  }
  void note_reserved(Sectors address, Handle handle) {
    reserved_.push_back({address, handle});
    for (std::int32_t i = 0; i < handles_[handle].pages; ++i) slots_[address + kPageOf8.sectors(i)] = {-1, 0};
  }
  // Of the pages from there on, as long as they are in use neither by a handle nor for one to come.
  [[nodiscard]] std::int32_t empty_pages(Sectors address, std::int32_t most) {
    std::int32_t pages = 0;
    for (; pages < most && address < end_of(address) && !slots_.contains(address); address += kPageOf8.sectors())
      ++pages;
    return pages;
  }
  [[nodiscard]] bool has_hole(Arena arena, std::int32_t pages) {
    for (Sectors at = PageTable::begin_of(arena); at < ends_[static_cast<std::size_t>(arena)]; at += kPageOf8.sectors())
      if (empty_pages(at, pages) == pages) return true;
    return false;
  }

  Reserved take_reserved() {
    const auto place = reserved_.begin() + static_cast<std::ptrdiff_t>(steps_.byte() % reserved_.size());
    const Reserved taken = *place;
    reserved_.erase(place);
    return taken;
  }
  void map() {
    if (reserved_.empty()) return;
    const auto [address, handle] = take_reserved();
    Known& known = handles_[handle];
    table_.map(handle, address);
    for (std::int32_t i = 0; i < known.pages; ++i) slots_[address + kPageOf8.sectors(i)] = {handle, i};
    known.mapped_at.insert(address);
    if (!known.home) {
      table_.move_home(handle, address);
      known.home = address;
    }
  }
  void cancel() {
    if (reserved_.empty()) return;
    const auto [address, handle] = take_reserved();
    table_.cancel(address, handles_[handle].pages);
    const Sectors sectors = kPageOf8.sectors(handles_[handle].pages);
    slots_.erase(slots_.lower_bound(address), slots_.lower_bound(address + sectors));
    if (address + sectors == end_of(address)) end_of(address) = address;
  }
  [[nodiscard]] std::optional<Sectors> pick_mapping(const Known& known) {
    if (known.mapped_at.empty()) return std::nullopt;
    return *std::next(known.mapped_at.begin(), static_cast<std::ptrdiff_t>(steps_.byte() % known.mapped_at.size()));
  }
  void move_home() {
    const auto handle = pick();
    if (!handle) return;
    Known& known = handles_[*handle];
    const auto address = pick_mapping(known);
    if (!address) return;
    table_.move_home(*handle, *address);
    known.home = address;
  }
  // Its home stays.
  void unmap() {
    const auto handle = pick();
    if (!handle) return;
    const auto address = pick_mapping(handles_[*handle]);
    if (address && address != handles_[*handle].home) unmap(*handle, *address);
  }
  void unmap(Handle handle, Sectors address) {
    Known& known = handles_[handle];
    table_.unmap(handle, address);
    slots_.erase(slots_.lower_bound(address), slots_.lower_bound(address + kPageOf8.sectors(known.pages)));
    known.mapped_at.erase(address);
  }
  // Everywhere, unless it is about to be mapped.
  void remove() {
    const auto handle = pick();
    if (!handle) return;
    if (std::any_of(reserved_.begin(), reserved_.end(), [&](const Reserved& of) { return of.handle == *handle; }))
      return;
    for (const Sectors address : std::set<Sectors>(handles_[*handle].mapped_at)) unmap(*handle, address);
    table_.remove_handle(*handle);
    handles_.erase(*handle);
  }
  void cut_end(Arena arena) {
    if (std::any_of(reserved_.begin(), reserved_.end(),
                    [&](const Reserved& of) { return PageTable::arena_of(of.address) == arena; }))
      return;
    table_.cut_end(arena);
    Sectors& end = ends_[static_cast<std::size_t>(arena)];
    while (end > PageTable::begin_of(arena) && !slots_.contains(end - kPageOf8.sectors())) end -= kPageOf8.sectors();
  }

  void compare_counts() const {
    std::int64_t pages = 0;
    std::int64_t mapped = 0;
    for (const auto& [handle, known] : handles_) {
      pages += known.pages;
      mapped += known.pages * static_cast<std::int64_t>(known.mapped_at.size());
    }
    require(table_.pages() == pages, "how many pages handles have");
    require(table_.mapped_pages() == mapped, "how many pages are mapped");
    require(table_.arenas() == static_cast<std::int32_t>(ends_.size()), "how many arenas there are");
    for (Arena arena = 0; arena < table_.arenas(); ++arena) {
      const Sectors end = ends_[static_cast<std::size_t>(arena)];
      require(table_.end_of(arena) == end, "where an arena ends");
      require(table_.slots(arena) == kPageOf8.whole(end - PageTable::begin_of(arena)), "how many pages an arena has");
    }
  }

  [[nodiscard]] bool is_mapped(Sectors address) const {
    const auto slot = slots_.find(kPageOf8.down(address));
    return slot != slots_.end() && slot->second.handle >= 0;
  }
  // Some sectors, in front of the arena and behind its end too.
  void ask() {
    const std::uint64_t text = steps_.byte();
    const auto arena = static_cast<Arena>(text % ends_.size());
    const Sectors address = PageTable::begin_of(arena) - 8 + static_cast<Sectors>(steps_.word() % 600);
    const Sectors count = 1 + static_cast<Sectors>(text / 4);
    bool is_all_mapped = true;
    for (Sectors at = address; at < address + count; ++at) is_all_mapped = is_all_mapped && is_mapped(at);
    require(table_.is_mapped(address, count) == is_all_mapped, "whether all of it is mapped");
    if (!is_all_mapped) return;
    ask_slot(address);
    ask_handles(address, count);
    ask_pieces(address, count);
  }
  void ask_slot(Sectors address) {
    const Slot slot = slots_[kPageOf8.down(address)];
    const Known& known = handles_[slot.handle];
    require(table_.slot_at(address) == slot && table_.handle_at(address) == slot.handle, "what is mapped there");
    const Sectors begin = kPageOf8.down(address) - kPageOf8.sectors(slot.page);
    require(table_.mapping_begin(address) == begin, "where a mapping begins");
    require(table_.at_home(address) == at_home(address), "the same byte at home");
    require(table_.maps(slot.handle, begin), "a mapping is known by where it begins");
    require(table_.maps(slot.handle, address) == (slot.page == 0), "and by the page alone");
    require(table_.pages_of(slot.handle) == known.pages && table_.home_of(slot.handle) == known.home,
            "what a handle is");
  }
  [[nodiscard]] Sectors at_home(Sectors address) {
    const Slot slot = slots_[kPageOf8.down(address)];
    return *handles_[slot.handle].home + kPageOf8.sectors(slot.page) + kPageOf8.offset(address);
  }
  void ask_handles(Sectors address, Sectors count) {
    std::vector<Handle> in;
    std::vector<std::pair<Handle, Sectors>> covered;
    for (Sectors at = address; at < address + count;) {
      const Slot slot = slots_[kPageOf8.down(at)];
      const Sectors begin = kPageOf8.down(at) - kPageOf8.sectors(slot.page);
      at = begin + kPageOf8.sectors(handles_[slot.handle].pages);
      in.push_back(slot.handle);
      if (begin >= address && at <= address + count) covered.emplace_back(slot.handle, begin);
    }
    std::vector<Handle> found;
    table_.for_each_handle_in(address, count, [&](Handle handle) { found.push_back(handle); });
    require(found == in, "which handles have some of it");
    std::vector<std::pair<Handle, Sectors>> whole;
    table_.for_each_covered(address, count, [&](Handle handle, Sectors at) { whole.emplace_back(handle, at); });
    require(whole == covered, "which mappings lie in it whole");
    require(table_.covers_any(address, count) == !covered.empty(), "whether any does");
  }
  // Pieces are as long as may be, and all sectors are in them.
  void ask_pieces(Sectors address, Sectors count) {
    std::vector<Sectors> sectors;
    Sectors end = -1;
    require(table_.for_each_piece(address, count,
                                  [&](Sectors home, Sectors length) {
                                    require(length > 0 && home != end, "pieces side by side are one");
                                    end = home + length;
                                    for (Sectors i = 0; i < length; ++i) sectors.push_back(home + i);
                                    return true;
                                  }),
            "all pieces are visited");
    std::vector<Sectors> expected;
    for (Sectors at = address; at < address + count; ++at) expected.push_back(at_home(at));
    require(sectors == expected, "where the bytes are at home");
    int visits = 0;
    require(!table_.for_each_piece(address, count, [&](Sectors, Sectors) { return ++visits == 0; }) && visits == 1,
            "visiting ends when told so");
  }
  void compare_all() const {
    table_.audit();
    std::vector<std::pair<Sectors, Handle>> expected;
    std::vector<Handle> at_home;
    for (const auto& [handle, known] : handles_) {
      for (const Sectors address : known.mapped_at) expected.emplace_back(address, handle);
      if (known.home) at_home.push_back(handle);
    }
    std::sort(expected.begin(), expected.end());
    std::vector<std::pair<Sectors, Handle>> found;
    table_.for_each_mapping([&](Handle handle, Sectors address) { found.emplace_back(address, handle); });
    require(found == expected, "all mappings are visited, by address");
    std::vector<Handle> visited;
    table_.for_each_handle([&](Handle handle) { visited.push_back(handle); });
    require(visited == at_home, "all handles at home are visited");
  }

  Steps steps_;
  PageTable table_{kPageOf8};
  std::vector<Sectors> ends_;  // of arenas
  std::map<Handle, Known> handles_;
  std::map<Sectors, Slot> slots_;  // by the page's address; reserved: no handle
  std::vector<Reserved> reserved_;
};

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Program(Steps(data, size)).run();
  return 0;
}
