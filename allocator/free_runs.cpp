#include "allocator/free_runs.h"

#include <algorithm>
#include <array>
#include <span>

#include "allocator/free_parts.h"
#include "stats/invariant.h"

namespace cistern {
namespace {

// Of so many runs one may be noted that is to be found; a walk over all takes less than finding more.
constexpr std::size_t kRunsOfUnfound = 8;
constexpr std::size_t kFewestUnfound = 64;

}  // namespace

void FreeRuns::provide(std::size_t runs) {
  const std::size_t all = runs_.size() + runs;
  if (runs_.has_room_for(all) && by_size_.has_room_for(all)) return;
  // By half at least, so that it is seldom moved.
  if (const std::size_t most = unfound_.capacity(), wanted = all / kRunsOfUnfound + kFewestUnfound;
      parts_ != nullptr && most < wanted)
    unfound_.reserve(std::max(wanted, most + most / 2));
  by_size_.provide(all);
  runs_.provide(all);
}

void FreeRuns::keep_room(std::size_t runs) {
  provide(kept_ + runs);
  kept_ += runs;
}

void FreeRuns::add_stream(StreamNumber stream) {
  if (parts_ != nullptr) parts_->add_stream(stream);
}

void FreeRuns::add(const IndexedRun& run) noexcept {
  runs_.insert(Run(run));
  by_size_.add(run.run);
  sectors_ += run.run.sectors;
  if (run.found != IndexedRun::kAll) note_unfound(run.run.address);
}

void FreeRuns::remove(Place place) noexcept {
  const FreeRun run = runs_[place].run();
  by_size_.remove(run);
  sectors_ -= run.sectors;
  runs_.erase(place);
}

void FreeRuns::change(Place place, const IndexedRun& to) noexcept {
  const IndexedRun from = runs_[place].indexed();
  by_size_.change(from.run, to.run);
  sectors_ += to.run.sectors - from.run.sectors;
  runs_.replace(place, Run(to));
  const bool is_noted = from.found != IndexedRun::kAll && from.run.address == to.run.address;
  if (to.found != IndexedRun::kAll && !is_noted) note_unfound(to.run.address);
}

void FreeRuns::note_unfound(Sectors address) noexcept {
  if (parts_ == nullptr) return;
  if (unfound_.size() < unfound_.capacity())
    unfound_.push_back(address);
  else
    has_more_unfound_ = true;
}

void FreeRuns::find_parts(Place place) noexcept {
  IndexedRun run = runs_[place].indexed();
  if (run.found == IndexedRun::kAll) return;
  parts_->find(run);
  runs_.replace(place, Run(run));
}

void FreeRuns::find_parts() noexcept {
  if (has_more_unfound_) {
    for (Place at = runs_.begin(); at != runs_.end(); at = runs_.next(at)) find_parts(at);
  } else {
    for (const Sectors address : unfound_)
      if (const Place at = holding(address); at != runs_.end()) find_parts(at);
  }
  unfound_.clear();
  has_more_unfound_ = false;
}

void FreeRuns::give(Sectors address, Sectors count, StreamNumber stream) {
  add_stream(stream);
  FreeRun run{address, count, stream};
  std::array<IndexedRun, 2> gone;
  std::size_t merged = 0;
  const Place next = runs_.lower_bound(address);
  const Place before = next == runs_.begin() ? runs_.end() : runs_.previous(next);
  bool is_beside_next = next != runs_.end() && runs_[next].address == run.end();
  const bool joins_next = is_beside_next && runs_[next].run().stream == stream;
  if (joins_next) {
    gone[merged++] = runs_[next].indexed();
    run.sectors += runs_[next].sectors;
    const Place behind = runs_.next(next);
    is_beside_next = behind != runs_.end() && runs_[behind].address == run.end();
  }
  bool is_beside_before = before != runs_.end() && runs_[before].end() == address;
  const bool joins_before = is_beside_before && runs_[before].run().stream == stream;
  if (joins_before) {
    gone[merged++] = runs_[before].indexed();
    run.address = runs_[before].address;
    run.sectors += runs_[before].sectors;
    is_beside_before = before != runs_.begin() && runs_[runs_.previous(before)].end() == run.address;
  }
  if (merged == 0) provide(1);
  IndexedRun comes{run};
  if (parts_ != nullptr) {
    const auto all_gone = std::span(gone).first(merged);
    parts_->change_edges(all_gone, std::span(&comes, 1));
    parts_->join_handles(all_gone, address, address + count, comes);
  }
  if (joins_before) {
    // The one behind last: to remove it moves others.
    change(before, comes);
    if (joins_next) remove(next);
  } else if (joins_next) {
    change(next, comes);
  } else {
    add(comes);
  }
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
  const Place place = holding(address);
  const FreeRun whole = runs_[place].run();
  const Sectors until = std::min(end, whole.end());
  const FreeRun before{whole.address, address - whole.address, whole.stream};
  const FreeRun behind{until, whole.end() - until, whole.stream};
  std::array<IndexedRun, 2> come;
  std::size_t count = 0;
  if (before.sectors > 0) come[count++].run = before;
  if (behind.sectors > 0) come[count++].run = behind;
  if (count == 2) provide(1);
  if (parts_ != nullptr) {
    const auto rests = std::span(come).first(count);
    const IndexedRun gone = runs_[place].indexed();
    parts_->change_edges(std::span(&gone, 1), rests);
    parts_->part_handles(gone, address, until, rests);
    parts_->took(address, until);
  }
  if (count == 0) {
    remove(place);
  } else {
    change(place, come[0]);
    if (count == 2) add(come[1]);
  }
  return {address, until - address, whole.stream};
}

FreeRuns::Place FreeRuns::holding(Sectors address) const {
  const Place next = runs_.lower_bound(address + 1);
  if (next == runs_.begin()) return runs_.end();
  const Place place = runs_.previous(next);
  return runs_[place].end() > address ? place : runs_.end();
}

bool FreeRuns::is_free(Sectors address, Sectors count) const {
  const Sectors end = address + count;
  for (Place at = holding(address); address < end; at = runs_.next(at)) {
    if (at == runs_.end() || runs_[at].address > address) return false;
    address = runs_[at].end();
  }
  return true;
}

bool FreeRuns::is_free_of(Sectors address, Sectors count, StreamNumber stream) const {
  const Place at = holding(address);
  return at != runs_.end() && runs_[at].run().stream == stream && runs_[at].end() >= address + count;
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
  const Place at = holding(address);
  return at != runs_.end() && runs_[at].end() >= address + count;
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
  by_size_.for_each_from(stream, 0, [&](const FreeRun& run) {
    sum += run.sectors;
    return true;
  });
  return sum;
}

bool FreeRuns::has_any_of(StreamNumber stream) const {
  bool has = false;
  by_size_.for_each_from(stream, 0, [&](const FreeRun&) {
    has = true;
    return false;
  });
  return has;
}

FreeRun FreeRuns::stretch_around(Sectors address) const {
  const Place place = holding(address);
  Place first = place;
  while (first != runs_.begin() && runs_[runs_.previous(first)].end() == runs_[first].address)
    first = runs_.previous(first);
  Sectors end = runs_[first].address;
  for (Place at = first; at != runs_.end() && runs_[at].address == end; at = runs_.next(at)) end = runs_[at].end();
  return {runs_[first].address, end - runs_[first].address, runs_[place].run().stream};
}

std::optional<FreeRun> FreeRuns::ending_at(Sectors end, StreamNumber stream) const {
  const Place at = holding(end - 1);
  if (at == runs_.end() || runs_[at].run().stream != stream) return std::nullopt;
  const FreeRun found = runs_[at].run();
  return found.end() == end ? std::optional(found) : std::nullopt;
}

void FreeRuns::audit() const {
  runs_.audit();
  by_size_.audit([this](const FreeRun& run) {
    const Place at = holding(run.address);
    require(at != runs_.end() && runs_[at].run() == run, "a free run is another one by its size");
  });
  require(by_size_.size() == runs_.size(), "a free run is in one index alone");
  Sectors sum = 0;
  FreeRun before;
  for_each([&](const FreeRun& run) {
    require(run.sectors > 0, "an empty free run");
    require(by_size_.contains(run), "a free run is not found by its size");
    require(before.end() <= run.address, "free runs overlap");
    require(before.end() < run.address || before.stream != run.stream, "free runs of one stream touch");
    sum += run.sectors;
    before = run;
  });
  require(sum == sectors_, "the count of free sectors is not their number");
}

}  // namespace cistern
