#include "allocator/free_runs.h"

#include <algorithm>
#include <iterator>

#include "stats/invariant.h"

namespace cistern {

void FreeRuns::keep_room(std::size_t runs) {
  nodes_.provide(kNodesOfARun * (kept_ + runs));
  kept_ += runs;
}

void FreeRuns::add_stream(StreamNumber stream) {
  while (by_size_.size() <= static_cast<std::size_t>(stream)) by_size_.push_back(std::make_unique<BySize>(&nodes_));
}

void FreeRuns::add(const FreeRun& run) {
  add_stream(run.stream);
  runs_.emplace(run.address, Tail{run.sectors, run.stream});
  by_size_[static_cast<std::size_t>(run.stream)]->emplace(run.sectors, run.address);
  sectors_ += run.sectors;
}

FreeRuns::ByAddress::iterator FreeRuns::remove(ByAddress::iterator run) {
  by_size_[static_cast<std::size_t>(run->second.stream)]->erase({run->second.sectors, run->first});
  sectors_ -= run->second.sectors;
  return runs_.erase(run);
}

void FreeRuns::give(Sectors address, Sectors count, StreamNumber stream) {
  FreeRun run{address, count, stream};
  auto next = runs_.lower_bound(address);
  if (next != runs_.end() && next->first == run.end() && next->second.stream == stream) {
    run.sectors += next->second.sectors;
    next = remove(next);
  }
  if (next != runs_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.sectors == address && before->second.stream == stream) {
      run.address = before->first;
      run.sectors += before->second.sectors;
      remove(before);
    }
  }
  add(run);
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
  remove(run);
  const Sectors until = std::min(end, whole.end());
  if (whole.address < address) add({whole.address, address - whole.address, whole.stream});
  if (until < whole.end()) add({until, whole.end() - until, whole.stream});
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
