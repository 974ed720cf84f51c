#include "allocator/free_runs.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "allocator/free_parts.h"
#include "stats/invariant.h"

namespace cistern {

void FreeRuns::keep_room(std::size_t runs) {
  nodes_.provide(kNodesOfARun * (kept_ + runs));
  kept_ += runs;
}

void FreeRuns::add_stream(StreamNumber stream) {
  while (by_size_.size() <= static_cast<std::size_t>(stream)) by_size_.push_back(std::make_unique<BySize>(&nodes_));
  if (parts_ != nullptr) parts_->add_stream(stream);
}

FreeRuns::ByAddress::iterator FreeRuns::add(const FreeRun& run, std::uint32_t classes, ByAddress::const_iterator next) {
  const auto by_size = by_size_[static_cast<std::size_t>(run.stream)]->emplace(run.sectors, run.address).first;
  sectors_ += run.sectors;
  return runs_.emplace_hint(next, run.address, Tail{run.sectors, run.stream, classes, by_size});
}

FreeRuns::ByAddress::iterator FreeRuns::remove(ByAddress::iterator run) {
  by_size_[static_cast<std::size_t>(run->second.stream)]->erase(run->second.by_size);
  sectors_ -= run->second.sectors;
  return runs_.erase(run);
}

void FreeRuns::give(Sectors address, Sectors count, StreamNumber stream) {
  add_stream(stream);
  FreeRun run{address, count, stream};
  std::array<FreeRun, 2> gone;
  std::size_t merged = 0;
  HandleCounts handles;
  const auto merge = [&](ByAddress::iterator part) {
    gone[merged] = {part->first, part->second.sectors, stream};
    run.sectors += gone[merged].sectors;
    if (parts_ != nullptr) handles += parts_->remove_handles(gone[merged], part->second.classes);
    ++merged;
    return remove(part);
  };
  auto next = runs_.lower_bound(address);
  bool is_beside_next = next != runs_.end() && next->first == run.end();
  if (is_beside_next && next->second.stream == stream) {
    next = merge(next);
    is_beside_next = next != runs_.end() && next->first == run.end();
  }
  bool is_beside_before = false;
  if (next != runs_.begin()) {
    auto before = std::prev(next);
    is_beside_before = before->first + before->second.sectors == address;
    if (is_beside_before && before->second.stream == stream) {
      run.address = before->first;
      next = merge(before);
      is_beside_before =
          next != runs_.begin() && (before = std::prev(next))->first + before->second.sectors == run.address;
    }
  }
  if (parts_ != nullptr) {
    handles += parts_->handles_in(run, address, address + count);
    parts_->change_edges(std::span(gone).first(merged), std::span(&run, 1));
    parts_->add_handles(run, handles);
  }
  add(run, handles.classes(), next);
  if (parts_ != nullptr) parts_->came_beside(run, is_beside_before, is_beside_next, *this);
}

void FreeRuns::take(Sectors address, Sectors count, std::vector<FreeRun>& taken) {
  for (const Sectors end = address + count; address < end; address = taken.back().end())
    taken.push_back(take_from_run(address, end));
}

void FreeRuns::take(Sectors address, Sectors count) {
  for (const Sectors end = address + count; address < end;) address = take_from_run(address, end).end();
}

// From the run that holds `address`, up to `end` or its own.
FreeRun FreeRuns::take_from_run(Sectors address, Sectors end) {
  const auto run = std::prev(runs_.upper_bound(address));
  const FreeRun whole{run->first, run->second.sectors, run->second.stream};
  const Sectors until = std::min(end, whole.end());
  const FreeRun before{whole.address, address - whole.address, whole.stream};
  const FreeRun behind{until, whole.end() - until, whole.stream};
  HandleCounts of_before;
  HandleCounts of_behind;
  if (parts_ != nullptr) {
    HandleCounts left = parts_->remove_handles(whole, run->second.classes);
    if (left.classes() != 0) {
      // The smaller rest is counted, and the other has what is left.
      left -= parts_->handles_in(whole, address, until);
      const bool is_before = before.sectors < behind.sectors;
      const FreeRun& smaller = is_before ? before : behind;
      const HandleCounts counted = parts_->handles_in(smaller, smaller.address, smaller.end());
      left -= counted;
      (is_before ? of_before : of_behind) = counted;
      (is_before ? of_behind : of_before) = left;
    }
    std::array<FreeRun, 2> come;
    std::size_t count = 0;
    if (before.sectors > 0) come[count++] = before;
    if (behind.sectors > 0) come[count++] = behind;
    parts_->change_edges(std::span(&whole, 1), std::span(come).first(count));
    parts_->add_handles(before, of_before);
    parts_->add_handles(behind, of_behind);
    parts_->took(address, until);
  }
  auto next = remove(run);
  if (behind.sectors > 0) next = add(behind, of_behind.classes(), next);
  if (before.sectors > 0) add(before, of_before.classes(), next);
  return {address, until - address, whole.stream};
}

FreeRuns::ByAddress::const_iterator FreeRuns::holding(Sectors address) const {
  const auto next = runs_.upper_bound(address);
  if (next == runs_.begin()) return runs_.end();
  const auto run = std::prev(next);
  return run->first + run->second.sectors > address ? run : runs_.end();
}

bool FreeRuns::is_free(Sectors address, Sectors count) const {
  const Sectors end = address + count;
  for (auto run = holding(address); address < end; ++run) {
    if (run == runs_.end() || run->first > address) return false;
    address = run->first + run->second.sectors;
  }
  return true;
}

bool FreeRuns::is_free_of(Sectors address, Sectors count, StreamNumber stream) const {
  const auto run = holding(address);
  return run != runs_.end() && run->second.stream == stream && run->first + run->second.sectors >= address + count;
}

Sectors FreeRuns::sectors_in(Sectors address, Sectors count) const {
  Sectors sectors = 0;
  const Sectors end = address + count;
  for_each_from(address, [&](const FreeRun& run) {
    if (run.address >= end) return false;
    sectors += std::min(end, run.end()) - std::max(address, run.address);
    return true;
  });
  return sectors;
}

bool FreeRuns::is_one_run(Sectors address, Sectors count) const {
  const auto run = holding(address);
  return run != runs_.end() && run->first + run->second.sectors >= address + count;
}

std::size_t FreeRuns::pieces(Sectors address, Sectors count) const {
  std::size_t found = 0;
  for_each_from(address, [&](const FreeRun& run) {
    ++found;
    return run.end() < address + count;
  });
  return found;
}

Sectors FreeRuns::sectors_of(StreamNumber stream) const {
  Sectors sum = 0;
  for (const auto& [sectors, address] : of(stream)) sum += sectors;
  return sum;
}

FreeRun FreeRuns::stretch_around(Sectors address) const {
  const auto run = holding(address);
  auto first = run;
  while (first != runs_.begin() && std::prev(first)->first + std::prev(first)->second.sectors == first->first) --first;
  Sectors end = first->first;
  for (auto at = first; at != runs_.end() && at->first == end; ++at) end += at->second.sectors;
  return {first->first, end - first->first, run->second.stream};
}

std::optional<FreeRun> FreeRuns::ending_at(Sectors end, StreamNumber stream) const {
  const auto run = holding(end - 1);
  if (run == runs_.end() || run->second.stream != stream) return std::nullopt;
  const FreeRun found{run->first, run->second.sectors, stream};
  return found.end() == end ? std::optional(found) : std::nullopt;
}

const FreeRuns::BySize& FreeRuns::of(StreamNumber stream) const {
  static const BySize none;
  const auto index = static_cast<std::size_t>(stream);
  return index < by_size_.size() ? *by_size_[index] : none;
}

void FreeRuns::audit() const {
  std::size_t indexed = 0;
  for (const auto& runs : by_size_) indexed += runs->size();
  require(indexed == runs_.size(), "a free run is in one index alone");
  Sectors sum = 0;
  FreeRun before;
  for (const auto& [address, tail] : runs_)
    require(*tail.by_size == std::pair(tail.sectors, address), "a free run has another's place by size");
  for_each([&](const FreeRun& run) {
    require(run.sectors > 0, "an empty free run");
    require(of(run.stream).contains({run.sectors, run.address}), "a free run is not found by its size");
    require(before.end() <= run.address, "free runs overlap");
    require(before.end() < run.address || before.stream != run.stream, "free runs of one stream touch");
    sum += run.sectors;
    before = run;
  });
  require(sum == sectors_, "the count of free sectors is not their number");
}

}  // namespace cistern
