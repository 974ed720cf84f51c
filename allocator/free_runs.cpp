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

void FreeRuns::add(const FreeRun& run, std::uint32_t classes, ByAddress::const_iterator next) {
  const auto by_size = by_size_[static_cast<std::size_t>(run.stream)]->emplace(run.sectors, run.address).first;
  sectors_ += run.sectors;
  runs_.insert(next, Run{run.address, run.sectors, run.stream, classes, by_size});
}

FreeRuns::ByAddress::iterator FreeRuns::remove(ByAddress::const_iterator run) {
  by_size_[static_cast<std::size_t>(run->stream)]->erase(run->by_size);
  sectors_ -= run->sectors;
  return runs_.erase(run);
}

void FreeRuns::change(const Run& run, const FreeRun& to, std::uint32_t classes) {
  BySize& by_size = *by_size_[static_cast<std::size_t>(run.stream)];
  auto node = by_size.extract(run.by_size);
  node.value() = {to.sectors, to.address};
  by_size.insert(std::move(node));  // the node, and so run.by_size, is the same
  sectors_ += to.sectors - run.sectors;
  run.address = to.address;
  run.sectors = to.sectors;
  run.classes = classes;
}

void FreeRuns::give(Sectors address, Sectors count, StreamNumber stream) {
  add_stream(stream);
  FreeRun run{address, count, stream};
  std::array<FreeRun, 2> gone;
  std::size_t merged = 0;
  HandleCounts handles;
  const auto merge = [&](const Run& part) {
    gone[merged++] = part.run();
    if (parts_ != nullptr) handles += parts_->remove_handles(part.run(), part.classes);
  };
  auto next = runs_.lower_bound(address);
  auto before = next == runs_.begin() ? runs_.end() : std::prev(next);
  bool is_beside_next = next != runs_.end() && next->address == run.end();
  const bool joins_next = is_beside_next && next->stream == stream;
  if (joins_next) {
    merge(*next);
    run.sectors += next->sectors;
    const auto behind = std::next(next);
    is_beside_next = behind != runs_.end() && behind->address == run.end();
  }
  bool is_beside_before = before != runs_.end() && before->end() == address;
  const bool joins_before = is_beside_before && before->stream == stream;
  if (joins_before) {
    merge(*before);
    run.address = before->address;
    run.sectors += before->sectors;
    is_beside_before = before != runs_.begin() && std::prev(before)->end() == run.address;
  }
  if (parts_ != nullptr) {
    handles += parts_->handles_in(run, address, address + count);
    parts_->change_edges(std::span(gone).first(merged), std::span(&run, 1));
    parts_->add_handles(run, handles);
  }
  if (joins_before && joins_next) remove(next);
  if (joins_before)
    change(*before, run, handles.classes());
  else if (joins_next)
    change(*next, run, handles.classes());
  else
    add(run, handles.classes(), next);
  if (parts_ != nullptr) parts_->came_beside(run, is_beside_before, is_beside_next, *this);
}

void FreeRuns::take(Sectors address, Sectors count, std::vector<FreeRun>& taken) {
  for (const Sectors end = address + count; address < end; address = taken.back().end())
    taken.push_back(take_first(address, end));
}

void FreeRuns::take(Sectors address, Sectors count) {
  for (const Sectors end = address + count; address < end;) address = take_first(address, end).end();
}

FreeRun FreeRuns::take_first(Sectors address, Sectors end) {
  const auto run = std::prev(runs_.upper_bound(address));
  const FreeRun whole = run->run();
  const Sectors until = std::min(end, whole.end());
  const FreeRun before{whole.address, address - whole.address, whole.stream};
  const FreeRun behind{until, whole.end() - until, whole.stream};
  HandleCounts of_before;
  HandleCounts of_behind;
  if (parts_ != nullptr) {
    HandleCounts left = parts_->remove_handles(whole, run->classes);
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
  if (before.sectors > 0) {
    if (behind.sectors > 0) add(behind, of_behind.classes(), std::next(run));
    change(*run, before, of_before.classes());
  } else if (behind.sectors > 0) {
    change(*run, behind, of_behind.classes());
  } else {
    remove(run);
  }
  return {address, until - address, whole.stream};
}

FreeRuns::ByAddress::const_iterator FreeRuns::holding(Sectors address) const {
  const auto next = runs_.upper_bound(address);
  if (next == runs_.begin()) return runs_.end();
  const auto run = std::prev(next);
  return run->end() > address ? run : runs_.end();
}

bool FreeRuns::is_free(Sectors address, Sectors count) const {
  const Sectors end = address + count;
  for (auto run = holding(address); address < end; ++run) {
    if (run == runs_.end() || run->address > address) return false;
    address = run->end();
  }
  return true;
}

bool FreeRuns::is_free_of(Sectors address, Sectors count, StreamNumber stream) const {
  const auto run = holding(address);
  return run != runs_.end() && run->stream == stream && run->end() >= address + count;
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
  return run != runs_.end() && run->end() >= address + count;
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
  while (first != runs_.begin() && std::prev(first)->end() == first->address) --first;
  Sectors end = first->address;
  for (auto at = first; at != runs_.end() && at->address == end; ++at) end += at->sectors;
  return {first->address, end - first->address, run->stream};
}

std::optional<FreeRun> FreeRuns::ending_at(Sectors end, StreamNumber stream) const {
  const auto run = holding(end - 1);
  if (run == runs_.end() || run->stream != stream) return std::nullopt;
  const FreeRun found = run->run();
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
  for (const Run& run : runs_)
    require(*run.by_size == std::pair(run.sectors, run.address), "a free run has another's place by size");
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
