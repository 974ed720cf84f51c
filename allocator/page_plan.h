#pragma once

// What PagePlacement is asked, what it plans for it, and what comes of that: records that it fills, and that its caller
// carries out.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/free_run.h"
#include "allocator/gather.h"
#include "allocator/known_places.h"
#include "allocator/page_table.h"
#include "allocator/placement_log.h"
#include "allocator/tight_fit.h"

namespace cistern {

struct PageRequest {
  Sectors sectors = 0;  // at least one
  StreamNumber stream = 0;
  // Free bytes of other streams may serve it: its stream can wait for theirs.
  bool may_take_others = true;
};

enum class PlanKind : std::uint8_t {
  placed,            // at `address`, or where the gather leads to
  refused_by_limit,  // it would take more pages than the limit
};

// What a plan is but for its lists.
struct PlanTerms {
  PlanKind kind = PlanKind::refused_by_limit;
  Sectors address = 0;
  PageRequest request;
  // Of plan_known: the place, which the block has already, and when it came there before and now. `taken` is at the
  // place's own addresses then.
  KnownPlaces::Number known = KnownPlaces::kNone;
  std::uint64_t came_before = 0;
  std::uint64_t came_at = 0;
  StreamNumber stream_before = 0;

  // Of the log when it was made: by the stream's own blocks, and by all.
  std::array<PlacementLog::Position, 2> positions;
  bool is_beside_whole = false;                       // no block had less than its place
  std::uint64_t log_was_forgotten = 0;                // so many times
  PlacementLog::Number logged = PlacementLog::kNone;  // the log's entry; none: the place is new to it
  Sectors logged_sectors = 0;                         // of it
  bool is_exact = false;                              // it was of a request of this size
  // Of the free runs, what held it; none: none did, or they were not asked.
  std::optional<TightFit> fit;
  bool exceeds_peak = false;  // memory is created beyond what was ever live
  bool keeps_exact = false;   // the gather becomes a window of this size
  bool keeps_length = false;  // and one for smaller requests
  std::size_t room = 0;       // for so many runs is kept, for what comes of it
  bool is_under_way = false;  // it has addresses that nothing is mapped at yet
  bool is_out = false;        // it was made, and is neither committed nor abandoned
};

struct PagePlan : PlanTerms {
  Gather gather;  // empty: all of it is mapped
  // Streams other than the request's whose free bytes it took. The request's stream is to wait for what they had
  // queued then, before the block is handed out.
  std::vector<StreamNumber> owners;
  std::vector<FreeRun> taken;  // of the free bytes

  // Names the owners of what is taken. Throws std::bad_alloc.
  void list_owners();
  // As a new one, but that it keeps the room that its lists had.
  void begin_anew(const PageRequest& of) noexcept;
};

struct PagedBlock {
  Sectors address = 0;
  Sectors sectors = 0;
  StreamNumber stream = 0;
  LoggedPlace logged;
  std::int64_t pages_then = 0;  // how many there were when it came
  KnownPlaces::Number known = KnownPlaces::kNone;
};

// Wholly free handles on their way to the driver. Who carries it out notes what is gone.
struct Departure {
  struct Mapping {
    Sectors address = 0;
    bool is_gone = false;
  };
  struct Leaving {
    PageTable::Handle handle = -1;
    std::int32_t pages = 0;
    bool is_gone = false;
    // Of the two lists below.
    std::size_t first_mapping = 0, mappings = 0;
    std::size_t first_piece = 0, pieces = 0;
  };
  std::vector<Leaving> handles;
  std::vector<Mapping> mappings;  // of each handle in turn, its home last
  std::vector<FreeRun> taken;     // whose last work the unmaps must not overtake
  std::size_t room = 0;
  std::int64_t pages = 0;  // of all handles

  [[nodiscard]] bool empty() const { return handles.empty(); }
};

}  // namespace cistern
