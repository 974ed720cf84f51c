// Mappings that nobody uses any more go, or they and their addresses would grow with every gather: those that are no
// home, and in which no block lies. What is known of places is forgotten first, so that no block comes there again.

#include <algorithm>
#include <new>
#include <utility>

#include "allocator/page_placement.h"

namespace cistern {
namespace {

// So many pages of addresses may show a page before any of them retire: steps that come again have theirs, those of the
// traces studied up to 48, and of queries on four streams, in 2 GiB, up to 94. Half as many where that is more than
// three times the device's memory, for there may be no addresses for more. More memory has less, since the driver keeps
// something for each.
constexpr std::int64_t kMostOfAPage = 128;
constexpr std::int64_t kMostOfDevice = 3;
constexpr std::int64_t kManyMapped = 524288;
constexpr std::int64_t kMostOfManyPages = 8;
constexpr std::int64_t kFewMapped = 4096;

}  // namespace

// A stream's addresses go on in another arena from twice the device's memory on.
std::int64_t PagePlacement::most_mapped() const {
  const std::int64_t pages = table_.pages();
  const std::int64_t of_device = kMostOfDevice * std::min(arena_pages_, kManyMapped) / 2;
  const std::int64_t of_pages = std::min(kMostOfAPage * pages, std::max(kMostOfAPage / 2 * pages, of_device));
  return std::max(kFewMapped, std::min(of_pages, kManyMapped + kMostOfManyPages * pages));
}

bool PagePlacement::may_begin_retirement() const {
  return retiring_.empty() && plans_out_ == 0 && departures_ == 0 &&
         table_.mapped_pages() > std::max(most_mapped(), retire_beyond_);
}

void PagePlacement::begin_retirement() {
  catch_up();
  // By arena and page: whether a block lies there.
  std::vector<std::vector<bool>> is_used;
  for (PageTable::Arena arena = 0; arena < table_.arenas(); ++arena)
    is_used.emplace_back(static_cast<std::size_t>(table_.slots(arena)));
  const auto page_of = [this](Sectors address) {
    return static_cast<std::size_t>(table_.page().whole(address - PageTable::begin_of(PageTable::arena_of(address))));
  };
  places_.for_each_live([&](const KnownPlace& place) {
    auto& used = is_used[static_cast<std::size_t>(PageTable::arena_of(place.address))];
    const std::size_t last = page_of(place.address + place.sectors - 1);
    for (std::size_t page = page_of(place.address); page <= last; ++page) used[page] = true;
  });
  std::vector<Retiree> retiring;
  table_.for_each_mapping([&](PageTable::Handle handle, Sectors address) {
    if (table_.home_of(handle) == address) return;
    const auto& used = is_used[static_cast<std::size_t>(PageTable::arena_of(address))];
    const auto first = used.begin() + static_cast<std::ptrdiff_t>(page_of(address));
    const std::int32_t pages = table_.pages_of(handle);
    if (std::find(first, first + pages, true) == first + pages) retiring.push_back({handle, pages, address, false});
  });
  std::reverse(retiring.begin(), retiring.end());  // the lowest addresses go first
  retiring_.swap(retiring);
  forget_places();
}

void PagePlacement::abandon_retirement() noexcept {
  retiring_.clear();
  retire_beyond_ = 2 * table_.mapped_pages();
}

std::vector<PagePlacement::Retiree> PagePlacement::take_retirees(std::size_t most) {
  std::vector<Retiree> batch;
  batch.reserve(std::min(most, retiring_.size()));
  while (batch.size() < most && !retiring_.empty()) {
    batch.push_back(retiring_.back());
    retiring_.pop_back();
  }
  return batch;
}

void PagePlacement::retired(const std::vector<Retiree>& batch) noexcept {
  for (const Retiree& one : batch)
    if (one.is_gone) table_.unmap(one.handle, one.address);
  if (!retiring_.empty()) return;
  // What the driver refuses to unmap is not asked for at once again.
  retire_beyond_ = table_.mapped_pages() > most_mapped() ? 2 * table_.mapped_pages() : 0;
  cut_ends();
}

void PagePlacement::forget_places() noexcept {
  log_.forget();
  knows_hand_overs_ = bytes_changed_hands_ = false;
  hand_overs_.forget();
  windows_.forget();
}

void PagePlacement::cut_ends() noexcept {
  if (under_way_ != 0) return;
  for (PageTable::Arena arena = 0; arena < table_.arenas(); ++arena) table_.cut_end(arena);
}

}  // namespace cistern
