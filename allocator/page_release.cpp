// Paged memory that goes back to the driver: wholly free handles, and arenas in which nothing is left.

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "allocator/page_placement.h"

namespace cistern {

Departure PagePlacement::leave(std::int64_t pages) {
  catch_up();
  FreeHandles free;
  table_.for_each_handle([&](PageTable::Handle handle) {
    const Sectors home = table_.home_of(handle);
    if (free_.is_free(home, table_.sectors_of(handle))) free.emplace_back(home, handle);
  });
  return leave(std::move(free), pages);
}

// Whoever carries it out unmaps a handle at its home last: what is refused before leaves it where it was. What was to
// retire may be among that.
Departure PagePlacement::leave(FreeHandles free, std::int64_t pages) {
  std::sort(free.rbegin(), free.rend());
  Departure departure;
  std::size_t pieces = 0;
  for (const auto& [home, handle] : free) {
    if (departure.pages >= pages) break;
    const std::int32_t count = table_.pages_of(handle);
    const std::size_t its_pieces = free_.pieces(home, table_.page().sectors(count));
    departure.handles.push_back({handle, count, false, 0, 0, pieces, its_pieces});
    departure.pages += count;
    pieces += its_pieces;
  }
  list_mappings(departure);
  departure.taken.reserve(pieces);
  free_.keep_room(pieces + departure.handles.size());  // one for what each take parts
  departure.room = pieces + departure.handles.size();
  for (const Departure::Leaving& leaving : departure.handles)
    free_.take(table_.home_of(leaving.handle), table_.sectors_of(leaving.handle), departure.taken);
  if (departure.empty()) return departure;
  ++departures_;
  retiring_.clear();
  return departure;
}

void PagePlacement::list_mappings(Departure& departure) const {
  if (departure.empty()) return;
  std::vector<std::size_t> of_handle;  // places in the departure + 1
  for (std::size_t i = 0; i < departure.handles.size(); ++i) {
    const auto handle = static_cast<std::size_t>(departure.handles[i].handle);
    if (of_handle.size() <= handle) of_handle.resize(handle + 1);
    of_handle[handle] = i + 1;
  }
  std::vector<std::pair<std::size_t, Sectors>> found;
  table_.for_each_mapping([&](PageTable::Handle handle, Sectors address) {
    const auto index = static_cast<std::size_t>(handle);
    if (index < of_handle.size() && of_handle[index] != 0) found.emplace_back(of_handle[index] - 1, address);
  });
  const auto is_home = [&](const std::pair<std::size_t, Sectors>& mapping) {
    return table_.home_of(departure.handles[mapping.first].handle) == mapping.second;
  };
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    return std::tuple(a.first, is_home(a), a.second) < std::tuple(b.first, is_home(b), b.second);
  });
  for (const auto& [place, address] : found) {
    Departure::Leaving& leaving = departure.handles[place];
    if (leaving.mappings++ == 0) leaving.first_mapping = departure.mappings.size();
    departure.mappings.push_back({address, false});
  }
}

// Places that were known may lie in what is gone, and their addresses may be given to others.
void PagePlacement::left(const Departure& departure) {
  if (departure.empty()) return;
  --departures_;
  for (const Departure::Leaving& leaving : departure.handles) {
    for (std::size_t i = 0; i < leaving.mappings; ++i) {
      const Departure::Mapping& mapping = departure.mappings[leaving.first_mapping + i];
      if (mapping.is_gone) table_.unmap(leaving.handle, mapping.address);
    }
    if (leaving.is_gone) {
      remove_handle(leaving.handle);
      spending_.gone(leaving.pages);
      continue;
    }
    for (std::size_t i = 0; i < leaving.pieces; ++i) {
      const FreeRun& piece = departure.taken[leaving.first_piece + i];
      free_.give(piece.address, piece.sectors, piece.stream);
    }
  }
  free_.drop_room(departure.room);
  end_room_to_settle();
  forget_places();
  cut_ends();
}

std::optional<PageTable::Arena> PagePlacement::take_empty_arena() noexcept {
  if (under_way_ != 0) return std::nullopt;
  for (PageTable::Arena arena = 0; arena < table_.arenas(); ++arena) {
    const auto place = static_cast<std::size_t>(arena);
    if (!is_open_[place] || table_.end_of(arena) != table_.begin_of(arena)) continue;
    is_open_[place] = false;
    std::replace(arenas_.begin(), arenas_.end(), arena, PageTable::Arena{-1});
    return arena;
  }
  return std::nullopt;
}

}  // namespace cistern
