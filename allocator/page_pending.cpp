// Places that a request would have if frees that are pending were over.

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "allocator/page_placement.h"

namespace cistern {
namespace {

// Bytes of a handle.
struct HandlePart {
  PageTable::Handle handle;
  Sectors begin;
  Sectors end;
};

// By handle.
std::vector<HandlePart> parts_at(const PageTable& table, Sectors address, Sectors sectors) {
  std::vector<HandlePart> parts;
  for (const Sectors end = address + sectors; address < end;) {
    const PageTable::Handle handle = table.handle_at(address);
    const Sectors begin = table.mapping_begin(address);
    const Sectors part_end = std::min(end, begin + table.sectors_of(handle));
    parts.push_back({handle, address - begin, part_end - begin});
    address = part_end;
  }
  std::sort(parts.begin(), parts.end(), [](const HandlePart& a, const HandlePart& b) { return a.handle < b.handle; });
  return parts;
}

Sectors common_sectors(const std::vector<HandlePart>& parts, const std::vector<HandlePart>& others) {
  Sectors common = 0;
  for (const HandlePart& other : others) {
    auto part = std::lower_bound(parts.begin(), parts.end(), other.handle,
                                 [](const HandlePart& a, PageTable::Handle handle) { return a.handle < handle; });
    for (; part != parts.end() && part->handle == other.handle; ++part)
      common += std::max<Sectors>(0, std::min(part->end, other.end) - std::max(part->begin, other.begin));
  }
  return common;
}

}  // namespace

std::optional<Sectors> PagePlacement::taken_place(const PageRequest& request) {
  if (!is_open()) return std::nullopt;
  catch_up();
  for (const auto& position : {log_.own_position(request.stream), log_.position_among_all(request.stream)}) {
    log_.candidates(position, request.sectors, candidates_);
    if (candidates_.empty() || log_.entry(candidates_.front()).asked() != request.sectors) continue;
    const Sectors address = log_.entry(candidates_.front()).place.address;
    if (is_usable(address, request)) return std::nullopt;
    // As in choose_logged: what came next goes before what is as large alone.
    const PlacementLog::Number next = log_.expected(position, request.sectors);
    const bool is_exact = candidates_.front() == log_.exact(position, request.sectors);
    if (!is_exact && next != PlacementLog::kNone && is_usable(log_.entry(next).place.address, request))
      return std::nullopt;
    return address;
  }
  return std::nullopt;
}

std::vector<KnownPlaces::Number> PagePlacement::in_the_way(Sectors address, const PageRequest& request,
                                                           const std::vector<KnownPlaces::Number>& pending) const {
  catch_up();
  const std::vector<HandlePart> parts = parts_at(table_, address, request.sectors);
  Sectors had = 0;
  table_.for_each_piece(address, request.sectors, [&](Sectors home, Sectors length) {
    had += free_.sectors_in(home, length);
    return true;
  });
  std::vector<KnownPlaces::Number> found;
  for (const KnownPlaces::Number number : pending) {
    if (had == request.sectors) break;
    const KnownPlace& place = places_[number];
    const Sectors common = common_sectors(parts, parts_at(table_, place.address, place.sectors));
    if (common == 0) continue;
    found.push_back(number);
    had += common;
  }
  if (had != request.sectors) found.clear();
  return found;
}

std::vector<KnownPlaces::Number> PagePlacement::worth_a_wait(const PageRequest& request,
                                                             const std::vector<KnownPlaces::Number>& pending) const {
  catch_up();
  for (const KnownPlaces::Number number : pending)
    if (places_[number].sectors >= request.sectors) return {number};
  // What of each handle is neither free nor pending.
  std::unordered_map<PageTable::Handle, Sectors> missing;
  for (const KnownPlaces::Number number : pending)
    for (const HandlePart& part : parts_at(table_, places_[number].address, places_[number].sectors)) {
      const auto [handle, is_new] = missing.try_emplace(part.handle, 0);
      const Sectors all = table_.sectors_of(part.handle);
      if (is_new) handle->second = all - free_.sectors_in(table_.home_of(part.handle), all);
      handle->second -= part.end - part.begin;
    }
  std::vector<KnownPlaces::Number> found;
  Sectors gained = 0;
  for (const KnownPlaces::Number number : pending) {
    if (gained >= request.sectors) break;
    Sectors freed = 0;
    for (const HandlePart& part : parts_at(table_, places_[number].address, places_[number].sectors))
      if (missing[part.handle] == 0) freed += part.end - part.begin;
    if (freed != 0) found.push_back(number);
    gained += freed;
  }
  return found;
}

void PagePlacement::settle_for(KnownPlaces::Number known, StreamNumber stream) noexcept {
  KnownPlace& place = places_[known];
  settle(known);
  const FreeRun piece{place.address, place.sectors, place.stream};
  change_hands({&piece, 1}, stream);
  place.stream = stream;
  freed_at_[static_cast<std::size_t>(stream)] = mark_;
}

}  // namespace cistern
