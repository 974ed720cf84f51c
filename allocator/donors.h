#pragma once

// Which wholly free handles are gathered: the stream's own first, then larger ones, then those in smaller runs, then
// those at lower addresses. Of the stream alone; or of all streams, those too that are free in parts of several.
//
// Not thread-safe: the heap's lock is held, and the free runs stay as they are meanwhile. Complexity: O(log runs) a
// size of handles, and for each other stream that has some of a size that is looked at; O(log streams) a handle that is
// chosen and what lies before it in its run; and for n handles that are free in parts of several streams O(n log n),
// and the runs that touch around each.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/free_parts.h"
#include "allocator/free_run.h"
#include "allocator/free_runs.h"
#include "allocator/page_table.h"

namespace cistern {

// A handle that is wholly free.
struct FreeHandle {
  PageTable::Handle handle = -1;
  std::int32_t pages = 0;
  Sectors address = 0;  // its home
};

struct DonorRequest {
  StreamNumber stream = 0;
  bool of_all_streams = false;
  // Handles with a byte in there are kept.
  Sectors kept_begin = 0;
  Sectors kept_end = 0;
  // And so are these two; none: -1.
  std::array<PageTable::Handle, 2> kept = {-1, -1};
};

class DonorSearch {
 public:
  DonorSearch(const FreeParts& parts, const FreeRuns& runs, const PageTable& table, const DonorRequest& request);

  // The first of them that together have at most `pages`. Once.
  [[nodiscard]] std::vector<FreeHandle> choose(std::int64_t pages);
  // The first of the others, which has more than was missing then; nothing: all are chosen.
  [[nodiscard]] std::optional<FreeHandle> first_left();

 private:
  // Where handles of one size are, of the stream or of all others: a run that has some, or one handle that has parts of
  // several streams.
  struct Place {
    Sectors sectors = 0;  // of the run, or of all that touch each other around the handle
    Sectors address = 0;
    StreamNumber stream = 0;
    std::int32_t handles = 0;
  };
  struct Shared {
    int size_class = 0;
    Place place;
  };
  enum Group { own, others };

  [[nodiscard]] static bool is_behind(const Place& a, const Place& b) {
    return a.sectors != b.sectors ? a.sectors > b.sectors : a.address > b.address;
  }
  void list_others();
  template <class Visit>
  void for_each_class(Visit&& visit);
  template <class Visit>
  void for_each_handle(Group group, int size_class, Visit&& visit) const;
  template <class Visit>
  void for_each_own_place(int size_class, Visit&& visit) const;
  template <class Visit>
  void for_each_other_place(int size_class, Visit&& visit) const;
  template <class Visit>
  bool for_each_in_run(const Place& run, int size_class, Visit&& visit) const;
  [[nodiscard]] bool is_kept(PageTable::Handle handle, Sectors begin, Sectors end) const;

  const FreeParts& parts_;
  const FreeRuns& runs_;
  const PageTable& table_;
  DonorRequest request_;
  bool has_listed_ = false;
  std::vector<Shared> shared_;  // by class, then as they are given up
  FreeParts::Classes of_others_ = 0;
  std::array<std::array<std::int32_t, HandleCounts::kClasses>, 2> chosen_{};
};

}  // namespace cistern
