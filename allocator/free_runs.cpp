#include "allocator/free_runs.h"

#include <algorithm>
#include <array>
#include <span>

#include "allocator/free_parts.h"
#include "stats/invariant.h"

namespace cistern {

void FreeRuns::provide(std::size_t runs) {
  by_size_.provide(runs_.size() + runs);
  runs_.provide(runs_.size() + runs);
}

void FreeRuns::keep_room(std::size_t runs) {
  provide(kept_ + runs);
  kept_ += runs;
}

void FreeRuns::add_stream(StreamNumber stream) {
  if (parts_ != nullptr) parts_->add_stream(stream);
}

void FreeRuns::add(const FreeRun& run, std::uint32_t classes) noexcept {
  runs_.insert({run.address, run.sectors, run.stream, classes});
  by_size_.add(run);
  sectors_ += run.sectors;
}

void FreeRuns::remove(Place place) noexcept {
  const FreeRun run = runs_[place].run();
  by_size_.remove(run);
  sectors_ -= run.sectors;
  runs_.erase(place);
}

void FreeRuns::change(Place place, const FreeRun& to, std::uint32_t classes) noexcept {
  const FreeRun run = runs_[place].run();
  by_size_.change(run, to);
  sectors_ += to.sectors - run.sectors;
  runs_.replace(place, {to.address, to.sectors, to.stream, classes});
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
  const Place next = runs_.lower_bound(address);
  const Place before = next == runs_.begin() ? runs_.end() : runs_.previous(next);
  bool is_beside_next = next != runs_.end() && runs_[next].address == run.end();
  const bool joins_next = is_beside_next && runs_[next].stream == stream;
  if (joins_next) {
    merge(runs_[next]);
    run.sectors += runs_[next].sectors;
    const Place behind = runs_.next(next);
    is_beside_next = behind != runs_.end() && runs_[behind].address == run.end();
  }
  bool is_beside_before = before != runs_.end() && runs_[before].end() == address;
  const bool joins_before = is_beside_before && runs_[before].stream == stream;
  if (joins_before) {
    merge(runs_[before]);
    run.address = runs_[before].address;
    run.sectors += runs_[before].sectors;
    is_beside_before = before != runs_.begin() && runs_[runs_.previous(before)].end() == run.address;
  }
  if (merged == 0) provide(1);
  if (parts_ != nullptr) {
    handles += parts_->handles_in(run, address, address + count);
    parts_->change_edges(std::span(gone).first(merged), std::span(&run, 1));
    parts_->add_handles(run, handles);
  }
  if (joins_before) {
    // The one behind last: to remove it moves others.
    change(before, run, handles.classes());
    if (joins_next) remove(next);
  } else if (joins_next) {
    change(next, run, handles.classes());
  } else {
    add(run, handles.classes());
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
  if (before.sectors > 0 && behind.sectors > 0) provide(1);
  HandleCounts of_before;
  HandleCounts of_behind;
  if (parts_ != nullptr) {
    HandleCounts left = parts_->remove_handles(whole, runs_[place].classes);
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
    change(place, before, of_before.classes());
    if (behind.sectors > 0) add(behind, of_behind.classes());
  } else if (behind.sectors > 0) {
    change(place, behind, of_behind.classes());
  } else {
    remove(place);
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
  return at != runs_.end() && runs_[at].stream == stream && runs_[at].end() >= address + count;
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
  return {runs_[first].address, end - runs_[first].address, runs_[place].stream};
}

std::optional<FreeRun> FreeRuns::ending_at(Sectors end, StreamNumber stream) const {
  const Place at = holding(end - 1);
  if (at == runs_.end() || runs_[at].stream != stream) return std::nullopt;
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
