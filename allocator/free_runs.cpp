#include "allocator/free_runs.h"

#include <algorithm>
#include <array>
#include <span>

#include "allocator/free_parts.h"
#include "stats/invariant.h"

namespace cistern {
namespace {

// Of so many runs so many may be noted that are to be found; a walk over all takes less than finding more.
std::size_t most_unfound(std::size_t runs) { return runs / 8 + 64; }

}  // namespace

// By half at least, so that they are seldom moved.
void FreeRuns::grow(std::size_t runs) {
  if (const std::size_t room = unfound_.room(); parts_ != nullptr && room < most_unfound(runs))
    unfound_.expect(std::max(most_unfound(runs), room + room / 2));
  nodes_.provide(runs);
}

void FreeRuns::add(const IndexedRun& run, RunNumber before) noexcept {
  const RunNumber number = nodes_.take();
  RunNode& node = nodes_[number];
  node.be(run);
  RunNumber& place = before == kNoRun ? first_ : nodes_[before].behind;
  node.before = before;
  node.behind = place;
  if (place != kNoRun) nodes_[place].before = number;
  place = number;
  by_address_.add(number);
  by_size_.add(number);
  ++size_;
  sectors_ += run.run.sectors;
  if (run.found != IndexedRun::kAll) note_unfound(number);
}

void FreeRuns::remove(RunNumber number) noexcept {
  const RunNode& node = nodes_[number];
  by_size_.remove(number);
  by_address_.remove(number);
  (node.before == kNoRun ? first_ : nodes_[node.before].behind) = node.behind;
  if (node.behind != kNoRun) nodes_[node.behind].before = node.before;
  --size_;
  sectors_ -= node.sectors;
  nodes_.give(number);
}

void FreeRuns::change(RunNumber number, const IndexedRun& to) noexcept {
  RunNode& node = nodes_[number];
  const bool stays_by_size = by_size_.stays(node, to.run.sectors);
  const bool stays_by_address = RunsByAddress::stays(node, to.run.address);
  if (!stays_by_size) by_size_.remove(number);
  if (!stays_by_address) by_address_.remove(number);
  const bool is_noted = node.found != IndexedRun::kAll;
  sectors_ += to.run.sectors - node.sectors;
  node.be(to);
  if (!stays_by_size) by_size_.add(number);
  if (!stays_by_address) by_address_.add(number);
  if (to.found != IndexedRun::kAll && !is_noted) note_unfound(number);
}

void FreeRuns::note_unfound(RunNumber number) noexcept {
  if (parts_ == nullptr) return;
  if (unfound_.size() < std::min(most_unfound(size_), unfound_.room()))
    unfound_.push_back(number);
  else
    has_more_unfound_ = true;
}

void FreeRuns::find_parts(RunNumber number) noexcept {
  RunNode& node = nodes_[number];
  if (node.found == IndexedRun::kAll) return;
  IndexedRun run = node.indexed();
  parts_->find(run);
  node.be(run);
}

void FreeRuns::find_parts() noexcept {
  if (has_more_unfound_) {
    for (RunNumber at = first_; at != kNoRun; at = nodes_[at].behind) find_parts(at);
  } else {
    for (const RunNumber number : unfound_) find_parts(number);
  }
  unfound_.clear();
  has_more_unfound_ = false;
}

void FreeRuns::give(Sectors address, Sectors count, StreamNumber stream) {
  add_stream(stream);
  provide_addresses(address + count);
  const RunNumber before = by_address_.last_up_to(address);
  const RunNumber next = before == kNoRun ? first_ : nodes_[before].behind;
  FreeRun run{address, count, stream};
  std::array<IndexedRun, 2> gone;
  std::size_t merged = 0;
  const auto begins_at = [this](RunNumber number, Sectors at) {
    return number != kNoRun && nodes_[number].address == at;
  };
  bool is_beside_next = begins_at(next, run.end());
  const bool joins_next = is_beside_next && nodes_[next].stream == stream;
  if (joins_next) {
    gone[merged++] = nodes_[next].indexed();
    run.sectors += nodes_[next].sectors;
    is_beside_next = begins_at(nodes_[next].behind, run.end());
  }
  const auto ends_at = [this](RunNumber number, Sectors at) { return number != kNoRun && nodes_[number].end() == at; };
  bool is_beside_before = ends_at(before, address);
  const bool joins_before = is_beside_before && nodes_[before].stream == stream;
  if (joins_before) {
    gone[merged++] = nodes_[before].indexed();
    run.address = nodes_[before].address;
    run.sectors += nodes_[before].sectors;
    is_beside_before = ends_at(nodes_[before].before, run.address);
  }
  if (merged == 0) provide(1);
  IndexedRun comes{run};
  if (parts_ != nullptr) {
    const auto all_gone = std::span(gone).first(merged);
    parts_->change_edges(all_gone, std::span(&comes, 1));
    parts_->join_handles(all_gone, address, address + count, comes);
  }
  if (joins_next && joins_before) remove(next);
  if (merged == 0)
    add(comes, before);
  else
    change(joins_before ? before : next, comes);
  if (parts_ != nullptr) parts_->came_beside(run, is_beside_before, is_beside_next, *this);
}

void FreeRuns::take(Sectors address, Sectors count, std::vector<FreeRun>& taken) {
  for (const Sectors end = address + count; address < end; address = taken.back().end())
    taken.push_back(take_of(holding(address), address, end));
}

void FreeRuns::take(Sectors address, Sectors count) {
  for (const Sectors end = address + count; address < end;) address = take_of(holding(address), address, end).end();
}

FreeRun FreeRuns::take_of(RunNumber number, Sectors address, Sectors end) {
  const FreeRun whole = nodes_[number].run();
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
    const IndexedRun gone = nodes_[number].indexed();
    parts_->change_edges(std::span(&gone, 1), rests);
    parts_->part_handles(gone, address, until, rests);
    parts_->took(address, until);
  }
  if (count == 0) {
    remove(number);
  } else {
    change(number, come[0]);
    if (count == 2) add(come[1], number);
  }
  return {address, until - address, whole.stream};
}

bool FreeRuns::is_free(Sectors address, Sectors count) const {
  const Sectors end = address + count;
  for (RunNumber at = holding(address); address < end; at = nodes_[at].behind) {
    if (at == kNoRun || nodes_[at].address > address) return false;
    address = nodes_[at].end();
  }
  return true;
}

bool FreeRuns::is_free_of(Sectors address, Sectors count, StreamNumber stream) const {
  const RunNumber at = holding(address);
  return at != kNoRun && nodes_[at].stream == stream && nodes_[at].end() >= address + count;
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
  const RunNumber at = holding(address);
  return at != kNoRun && nodes_[at].end() >= address + count;
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
  by_size_.for_each_from(stream, 0, [&](RunNumber /*number*/, const RunNode& run) {
    sum += run.sectors;
    return true;
  });
  return sum;
}

FreeRun FreeRuns::stretch_around(Sectors address) const {
  const RunNumber held_by = holding(address);
  const auto touches_before = [this](RunNumber at) {
    const RunNumber before = nodes_[at].before;
    return before != kNoRun && nodes_[before].end() == nodes_[at].address;
  };
  RunNumber first = held_by;
  while (touches_before(first)) first = nodes_[first].before;
  Sectors end = nodes_[first].address;
  for (RunNumber at = first; at != kNoRun && nodes_[at].address == end; at = nodes_[at].behind) end = nodes_[at].end();
  return {nodes_[first].address, end - nodes_[first].address, nodes_[held_by].stream};
}

std::optional<FreeRun> FreeRuns::ending_at(Sectors end, StreamNumber stream) const {
  const RunNumber at = holding(end - 1);
  if (at == kNoRun || nodes_[at].stream != stream || nodes_[at].end() != end) return std::nullopt;
  return nodes_[at].run();
}

void FreeRuns::audit() const {
  require(by_address_.audit() == size_, "free runs by address are not all");
  require(by_size_.audit() == size_, "free runs by size are not all");
  std::size_t count = 0;
  Sectors sum = 0;
  RunNumber last = kNoRun;
  for (RunNumber at = first_; at != kNoRun; last = at, at = nodes_[at].behind) {
    const FreeRun run = nodes_[at].run();
    require(run.sectors > 0, "an empty free run");
    require(nodes_[at].before == last, "a free run is behind another one");
    require(by_address_.last_up_to(run.address) == at, "a free run is not found where it begins");
    const FreeRun before = last == kNoRun ? FreeRun{} : nodes_[last].run();
    require(last == kNoRun || before.end() <= run.address, "free runs overlap");
    require(last == kNoRun || before.end() < run.address || before.stream != run.stream,
            "free runs of one stream touch");
    sum += run.sectors;
    ++count;
  }
  require(count == size_, "the count of free runs is not their number");
  require(sum == sectors_, "the count of free sectors is not their number");
}

}  // namespace cistern
