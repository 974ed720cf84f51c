// Wholly free handles that nobody used for long. Blocks that came and went since the free runs were last looked at tell
// which handles were used meanwhile.

#include <algorithm>
#include <utility>
#include <vector>

#include "allocator/page_placement.h"

namespace cistern {

// Of each place where a block came or went. All of them are mapped.
void PagePlacement::note_uses() const noexcept {
  for (const KnownPlaces::Number number : places_.changed()) {
    const KnownPlace& place = places_[number];
    for (Sectors at = place.address; at < place.address + place.sectors;) {
      const PageTable::Handle handle = table_.handle_at(at);
      ages_.used(handle);
      at = table_.mapping_begin(at) + table_.sectors_of(handle);
    }
  }
}

void PagePlacement::look_for_idle(std::int64_t now) noexcept {
  catch_up();
  table_.for_each_handle([&](PageTable::Handle handle) { ages_.looked_at(handle, now); });
}

bool PagePlacement::is_idle(PageTable::Handle handle, std::int64_t since) const {
  return ages_.is_unused_since(handle, since) && free_.is_free(table_.home_of(handle), table_.sectors_of(handle));
}

bool PagePlacement::has_idle(std::int64_t since) const {
  catch_up();
  bool has_some = false;
  table_.for_each_handle([&](PageTable::Handle handle) { has_some = has_some || is_idle(handle, since); });
  return has_some;
}

Departure PagePlacement::leave_idle(std::int64_t since, const std::vector<bool>& is_over) {
  catch_up();
  const auto is_over_there = [&](Sectors begin, Sectors end) {
    bool all = true;
    free_.for_each_from(begin, [&](const FreeRun& run) {
      const auto stream = static_cast<std::size_t>(run.stream);
      all = stream < is_over.size() && is_over[stream];
      return all && run.end() < end;
    });
    return all;
  };
  FreeHandles idle;
  table_.for_each_handle([&](PageTable::Handle handle) {
    const Sectors home = table_.home_of(handle);
    if (is_idle(handle, since) && is_over_there(home, home + table_.sectors_of(handle)))
      idle.emplace_back(home, handle);
  });
  return leave(std::move(idle), kNoLimit);
}

}  // namespace cistern
