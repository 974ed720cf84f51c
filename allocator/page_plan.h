#pragma once

// What PagePlacement is asked, what it plans for it, and what comes of that: records that it fills, and that its caller
// carries out.

#include <array>
#include <cstddef>
#include <cstdint>
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
  // Where it creates memory, it may create some for later ones, too.
  bool may_create_ahead = true;
};

// How requests were served.
struct PlacementCounts {
  std::int64_t logged = 0;   // where the log said
  std::int64_t windows = 0;  // in a window from before
  std::int64_t fits = 0;     // in a free run
  std::int64_t misses = 0;   // gathered for want of a run
  std::int64_t chosen = 0;   // in a window made of fragments
};

// Where a request goes, as long as it is undone by forgetting it.
struct PlaceChoice {
  Sectors address = 0;
  std::int64_t PlacementCounts::*count = nullptr;
  PlacementLog::Number logged = PlacementLog::kNone;  // the log's entry; none: it did not say so
  RunNumber run = kNoRun;                             // that it lies in, at home

  [[nodiscard]] static PlaceChoice in(const TightFit& fit) {
    return {fit.address, &PlacementCounts::fits, PlacementLog::kNone, fit.run};
  }
};

// Free bytes of the request's own stream, which nobody has taken yet: as long as nothing else happens. Filled where it
// lies, for a processor waits long for a copy of what it wrote piece by piece a moment ago.
struct OwnBytes {
  PageRequest request;
  PlaceChoice choice{};
  TightFit fit{};                     // as of a plan
  PlacementLog::Position position{};  // of the log
};

enum class PlanKind : std::uint8_t {
  placed,            // at `address`, or where the gather leads to
  refused_by_limit,  // it would take more pages than the limit
};

struct PagePlan {
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
  TightFit fit;
  bool is_at_home = false;    // it lies in a free run: its bytes are at home there
  bool exceeds_peak = false;  // memory is created beyond what was ever live
  bool keeps_exact = false;   // the gather becomes a window of this size
  bool keeps_length = false;  // and one for smaller requests
  std::size_t room = 0;       // for so many runs is kept, for what comes of it
  bool is_under_way = false;  // it has addresses that nothing is mapped at yet
  bool is_out = false;        // it was made, and is neither committed nor abandoned

  Gather gather;  // empty: all of it is mapped
  // Streams other than the request's whose free bytes it took. The request's stream is to wait for what they had
  // queued then, before the block is handed out.
  std::vector<StreamNumber> owners;
  std::vector<FreeRun> taken;  // of the free bytes

  // Names the owners of what is taken. Throws std::bad_alloc.
  void list_owners();
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
