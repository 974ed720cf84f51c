#include "runtime/simulated/host_mappings.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace cistern::simulated {
namespace {

bool overlap(std::uint64_t a, std::size_t a_bytes, std::uint64_t b, std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

std::size_t host_mapping_budget() {
  static const std::size_t budget = [] {
    std::size_t limit = 0;
    std::ifstream("/proc/sys/vm/max_map_count") >> limit;
    constexpr std::size_t kernel_default = 65530;
    return std::max<std::size_t>((limit == 0 ? kernel_default : limit) / 4, 64);
  }();
  return budget;
}

HostMappings::Table::iterator HostMappings::first_overlapping(std::uint64_t address) {
  const auto after = shown_.upper_bound(address);
  if (after == shown_.begin()) return after;
  const auto before = std::prev(after);
  return before->first + before->second.bytes > address ? before : after;
}

void HostMappings::use(Table::iterator shown) {
  if (shown->second.last_use == uses_) return;  // nothing was used since
  by_use_.emplace(uses_ + 1, shown->first);
  by_use_.erase(shown->second.last_use);
  shown->second.last_use = ++uses_;
}

// Joins the new entry with neighbours that the host has in one mapping with it.
void HostMappings::insert(std::uint64_t address, Shown shown) {
  const auto joins = [](const Shown& low, const Shown& high) {
    return low.place + low.bytes == high.place && low.access == high.access;
  };
  shown.last_use = ++uses_;
  auto entry = shown_.emplace(address, shown).first;
  by_use_.emplace(shown.last_use, address);
  const auto next = std::next(entry);
  if (next != shown_.end() && address + shown.bytes == next->first && joins(shown, next->second)) {
    entry->second.bytes += next->second.bytes;
    by_use_.erase(next->second.last_use);
    shown_.erase(next);
  }
  if (entry == shown_.begin()) return;
  const auto below = std::prev(entry);
  if (below->first + below->second.bytes != address || !joins(below->second, entry->second)) return;
  below->second.bytes += entry->second.bytes;
  by_use_[entry->second.last_use] = below->first;
  by_use_.erase(below->second.last_use);
  below->second.last_use = entry->second.last_use;
  shown_.erase(entry);
}

bool HostMappings::show_gap(std::uint64_t address, std::size_t bytes, FilePlace place, PageAccess access) {
  if (!has_room_for(1)) hide_idle(1);
  while (!pages_.map(address, place, bytes, access)) {
    // The process has more mappings than ours: what is idle here may make room.
    if (hide_idle(std::max<std::size_t>(most_ / 8, 1)) == 0) return false;
  }
  insert(address, Shown{bytes, place, access, 0});
  return true;
}

bool HostMappings::show(std::uint64_t address, std::size_t bytes, FilePlace place, PageAccess access) {
  if (pages_.backing() == Backing::none) return true;
  const std::uint64_t end = address + bytes;
  hold(address, bytes);  // what makes room must not take what was just shown
  bool all = true;
  for (std::uint64_t reached = address; all && reached < end;) {
    const auto shown = first_overlapping(reached);
    if (shown != shown_.end() && shown->first <= reached) {
      use(shown);
      reached = shown->first + shown->second.bytes;
    } else {
      const std::uint64_t gap_end = shown == shown_.end() ? end : std::min(end, shown->first);
      all = show_gap(reached, gap_end - reached, place + (reached - address), access);
      reached = gap_end;
    }
  }
  release(address, bytes);
  return all;
}

void HostMappings::cut(Table::iterator shown, std::uint64_t address, std::size_t bytes) {
  const std::uint64_t begin = shown->first;
  const Shown whole = shown->second;
  const std::uint64_t end = begin + whole.bytes;
  const std::uint64_t cut_end = address + bytes;
  if (end > cut_end) {
    shown_.emplace(cut_end, Shown{end - cut_end, whole.place + (cut_end - begin), whole.access, ++uses_});
    by_use_.emplace(uses_, cut_end);
  }
  if (begin < address) {
    shown->second.bytes = address - begin;
  } else {
    by_use_.erase(whole.last_use);
    shown_.erase(shown);
  }
}

bool HostMappings::hide(std::uint64_t address, std::size_t bytes) {
  const std::uint64_t end = address + bytes;
  auto shown = first_overlapping(address);
  if (shown == shown_.end() || shown->first >= end) return true;
  hold(address, bytes);
  bool hidden = pages_.unmap(address, bytes);
  // To cut a mapping in two takes one more of the host's.
  while (!hidden && hide_idle(std::max<std::size_t>(most_ / 8, 1)) != 0) hidden = pages_.unmap(address, bytes);
  release(address, bytes);
  if (!hidden) return false;
  for (shown = first_overlapping(address); shown != shown_.end() && shown->first < end;
       shown = first_overlapping(address)) {
    cut(shown, address, bytes);
  }
  return true;
}

std::size_t HostMappings::hide_idle(std::size_t count) {
  std::size_t hidden = 0;
  for (auto oldest = by_use_.begin(); oldest != by_use_.end() && hidden < count;) {
    const auto shown = shown_.find(oldest->second);
    const std::size_t bytes = shown->second.bytes;
    if (is_held(shown->first, bytes) || !pages_.unmap(shown->first, bytes)) {
      ++oldest;
      continue;
    }
    oldest = by_use_.erase(oldest);
    shown_.erase(shown);
    ++hidden;
  }
  return hidden;
}

void HostMappings::hold(std::uint64_t address, std::size_t bytes) { held_.push_back({address, bytes}); }

void HostMappings::release(std::uint64_t address, std::size_t bytes) noexcept {
  const auto held = std::find_if(held_.begin(), held_.end(),
                                 [&](const Range& range) { return range.address == address && range.bytes == bytes; });
  if (held == held_.end()) return;
  *held = held_.back();
  held_.pop_back();
}

bool HostMappings::is_held(std::uint64_t address, std::size_t bytes) const {
  return std::any_of(held_.begin(), held_.end(),
                     [&](const Range& range) { return overlap(range.address, range.bytes, address, bytes); });
}

}  // namespace cistern::simulated
