#include "runtime/simulated/race_reports.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include <unistd.h>

namespace cistern::simulated {
namespace {

// A status of the program's own says more than ours. _exit, because the status cannot be
// changed otherwise any more; what the streams hold is written first.
void exit_with_races(int status, void* /*unused*/) {
  if (status != 0) return;
  std::fflush(nullptr);
  ::_exit(kRaceExitStatus);
}

void change_exit_status() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (::on_exit(exit_with_races, nullptr) == 0) return;
    std::fputs("cistern: races were found, but the exit status cannot say so: on_exit failed\n", stderr);
  });
}

RaceSide side_of(const RaceOperation& operation, bool writes, const RaceStacks& stacks) {
  return {operation.kind,      operation.name, operation.device,           operation.stream,
          operation.stream_id, writes,         stacks.at(operation.stack), stacks.at(operation.captured.stack)};
}

RaceBlock block_of(const RaceLifetime& lifetime, const RaceStacks& stacks) {
  return {reinterpret_cast<const void*>(lifetime.address),
          lifetime.bytes,
          lifetime.origin,
          lifetime.is_live(),
          stacks.at(lifetime.allocated),
          stacks.at(lifetime.freed)};
}

}  // namespace

void RaceReports::add(const RaceFind& find, const RaceStacks& stacks) {
  const RaceOperation nobody;
  const RaceOperation& later = find.later == nullptr ? nobody : *find.later;
  const Places places{find.kind, find.earlier->stack, find.earlier->captured.stack, later.stack, later.captured.stack};
  const auto [place, is_new] = places_.try_emplace(places, reports_.size());
  if (!is_new) {
    ++reports_[place->second].repeats;
    return;
  }
  RaceReport report;
  report.kind = find.kind;
  report.earlier = side_of(*find.earlier, find.earlier_writes, stacks);
  if (find.later != nullptr) report.later = side_of(*find.later, find.later_writes, stacks);
  report.address = reinterpret_cast<const void*>(find.begin);
  report.bytes = find.end - find.begin;
  if (find.lifetime != nullptr) report.block = block_of(*find.lifetime, stacks);
  reports_.push_back(std::move(report));
  if (mode_ == RaceMode::collect) return;
  std::fputs(reports_.back().to_string().c_str(), stderr);
  if (mode_ == RaceMode::abort) std::abort();
  change_exit_status();
}

void RaceReports::clear() {
  reports_.clear();
  places_.clear();
}

}  // namespace cistern::simulated
