#pragma once

// Where a request goes in paged memory: which free bytes, which handles are gathered beside each other, what is
// created. Decides and keeps the records; the driver's calls are its caller's.
//
// The caller holds the heap's lock, but for the driver's part:
//   PagePlan plan = placement.plan(request);       // changes nothing but what a gather has to have to itself
//   if (!plan.gather.empty()) without the lock: carry_out(plan.gather, driver)
//   PagedBlock block = placement.commit(plan);     // or placement.abandon(plan), after which all is as before
//   ...
//   placement.freed(block);                        // at the user's free
//   placement.settle(block);                       // when all streams are done with it: its bytes are free
// Invariant: every byte of every handle is free at home, part of one block, or had by one plan under way.
// Complexity: see the parts; a miss is linear in the free runs. Not thread-safe.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "allocator/creation_harm.h"
#include "allocator/driver_spending.h"
#include "allocator/free_parts.h"
#include "allocator/free_runs.h"
#include "allocator/gather.h"
#include "allocator/page_table.h"
#include "allocator/past_windows.h"
#include "allocator/placement_log.h"

namespace cistern {

struct PageRequest {
  Sectors sectors = 0;  // at least one
  StreamNumber stream = 0;
  // Blocks were freed and are not settled: the plan may ask for them.
  bool has_pending = false;
};

enum class PlanKind : std::uint8_t {
  placed,            // at `address`, or where the gather leads to
  awaits_pending,    // settle the pending blocks behind device-side waits, then plan again
  refused_by_limit,  // it would take more pages than the limit
};

struct PagePlan {
  PlanKind kind = PlanKind::refused_by_limit;
  Sectors address = 0;
  PageRequest request;
  Gather gather;  // empty: all of it is mapped
  // Once committed: streams other than the request's whose free bytes it took. The request's stream is to wait for
  // what they had queued then, before the block is handed out.
  std::vector<StreamNumber> owners;

  PlacementLog::Key key = 0;
  Sectors logged_sectors = 0;  // of the log's entry; 0: the place is new to the log
  bool keeps_exact = false;    // the gather becomes a window of this size
  bool keeps_length = false;   // and one for smaller requests
  std::vector<FreeRun> taken;  // of the free bytes, by the gather and at the commit
};

struct PagedBlock {
  Sectors address = 0;
  Sectors sectors = 0;
  StreamNumber stream = 0;
  LoggedPlace logged;
  std::int64_t pages_then = 0;  // how many there were when it came
};

// How requests were served.
struct PlacementCounts {
  std::int64_t logged = 0;   // where the log said
  std::int64_t windows = 0;  // in a window from before
  std::int64_t fits = 0;     // in a free run
  std::int64_t misses = 0;   // gathered for want of a run
  std::int64_t chosen = 0;   // in a window made of fragments
};

class PagePlacement {
 public:
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

  explicit PagePlacement(PageSize page = PageSize(), std::int64_t page_limit = kNoLimit);

  [[nodiscard]] PagePlan plan(const PageRequest& request);
  PagedBlock commit(PagePlan& plan);
  void abandon(const PagePlan& plan);
  void freed(const PagedBlock& block);
  void settle(const PagedBlock& block);

  [[nodiscard]] const PageTable& table() const { return table_; }
  [[nodiscard]] const FreeRuns& free_runs() const { return free_; }
  [[nodiscard]] const DriverSpending& spending() const { return spending_; }
  [[nodiscard]] const PlacementCounts& counts() const { return counts_; }

  // Throws std::logic_error where a part's invariant, or that free bytes are at home, does not hold.
  void audit() const;

 private:
  [[nodiscard]] PageTable::Arena arena_of(StreamNumber stream);
  [[nodiscard]] bool is_usable(Sectors address, Sectors sectors) const;
  [[nodiscard]] bool is_worth_a_window(const PageRequest& request) const;
  [[nodiscard]] PagePlan placed(PagePlan plan, Sectors address, std::int64_t& count);
  void occupy(PagePlan& plan);

  // page_gather.cpp
  void plan_miss(PagePlan& plan);
  [[nodiscard]] bool plan_window_of_parts(PagePlan& plan, bool of_all_streams);
  [[nodiscard]] Sectors tail_of(const PageRequest& request);
  [[nodiscard]] std::int64_t pages_within_peak(const PageRequest& request) const;
  [[nodiscard]] std::int64_t with_growth(const PageRequest& request, std::int64_t pages) const;
  [[nodiscard]] std::int32_t pages_of_new(const PageRequest& request, std::int64_t missing) const;
  void add_mapped(PagePlan& plan, PageTable::Handle handle, bool moves_home);
  void add_donors(PagePlan& plan, const std::vector<FreeHandle>& donors);
  void add_new(PagePlan& plan, std::int64_t pages, bool may_round_up);
  void adopt(const PagePlan& plan);

  PageTable table_;
  FreeRuns free_;
  PlacementLog log_;
  PastWindows windows_;
  CreationHarm harm_;
  DriverSpending spending_;
  PlacementCounts counts_;
  std::int64_t page_limit_;
  Sectors live_ = 0;
  Sectors peak_live_ = 0;
  std::vector<LoggedPlace> candidates_;  // room that is kept
};

}  // namespace cistern
