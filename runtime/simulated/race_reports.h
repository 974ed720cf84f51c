#pragma once

// RaceReports: what was found, each pair of places once.
//
// Thread safety: none but for the exit status; the driver holds its lock around every call.

#include <cistern/race_report.h>

#include "runtime/simulated/race_memory.h"
#include "runtime/simulated/race_operation.h"
#include "runtime/simulated/race_stack.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace cistern::simulated {

// A find, as the detector has it: numbers and addresses, nothing looked up.
struct RaceFind {
  RaceKind kind;
  const RaceOperation* earlier = nullptr;
  bool earlier_writes = false;
  const RaceOperation* later = nullptr;  // may be null
  bool later_writes = false;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const RaceLifetime* lifetime = nullptr;  // may be null
};

class RaceReports {
 public:
  explicit RaceReports(RaceMode mode) : mode_(mode) {}

  // Keeps it, or counts it with the one that it repeats. Prints and aborts as the mode says.
  void add(const RaceFind& find, const RaceStacks& stacks);
  [[nodiscard]] const std::vector<RaceReport>& all() const noexcept { return reports_; }
  void clear();

 private:
  // Of both sides: where it was called from, and where a capture took it.
  using Places = std::tuple<RaceKind, RaceStackId, RaceStackId, RaceStackId, RaceStackId>;

  RaceMode mode_;
  std::vector<RaceReport> reports_;
  std::map<Places, std::size_t> places_;
};

}  // namespace cistern::simulated
