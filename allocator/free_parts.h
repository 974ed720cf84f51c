#pragma once

// What free runs offer to a request that no run holds, found without looking at all of them: handles that are wholly
// free, and fragments at the edges of handles.
//
// FreeRuns says which runs come and go, and when what those that came offer is to be found: it is asked for much less
// often than they come and go. Kept of each stream: its runs by how many handles of a size they have whole, in the
// order in which handles are given up, and its fragments by size; and of all streams the handles that are free in parts
// of several. A handle has one of the first, or of the others at most three, so that what comes and goes takes no host
// memory if there is room for all handles. The handles of a long run are counted at once, so that no search has more
// than those of a short one to count for each run that came.
//
// Complexity: a change of a run that is found O(log n) for each size of handles in it, and of a long one O(handles)
// that what was given or taken touches; O(runs) up to the first gap, beside runs of other streams; what is cut out of
// the middle of a long run, O(handles) in the smaller rest of it. To find what a short run offers, O(handles in it).
// Not thread-safe: the heap's lock is held.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory_resource>
#include <set>
#include <span>
#include <vector>

#include "allocator/fragments.h"
#include "allocator/free_run.h"
#include "allocator/handle_counts.h"
#include "allocator/indexed_run.h"
#include "allocator/page_table.h"
#include "allocator/spare_nodes.h"

namespace cistern {

class FreeRuns;

class FreeParts {
 public:
  // A run that has handles of one size. Those of a stream lie together, as they are given up.
  struct ClassRun {
    std::int32_t size_class = 0;
    StreamNumber stream = 0;
    Sectors sectors = 0;
    Sectors address = 0;
    friend auto operator<=>(const ClassRun&, const ClassRun&) = default;
  };
  // And how many it has.
  using Runs = std::pmr::map<ClassRun, std::int32_t>;
  struct RunRange {
    Runs::const_iterator first, last;
    [[nodiscard]] Runs::const_iterator begin() const { return first; }
    [[nodiscard]] Runs::const_iterator end() const { return last; }
    [[nodiscard]] bool empty() const { return first == last; }
  };
  using Classes = HandleCounts::Classes;

  // From so many pages on a run is long.
  static constexpr std::int64_t kPagesOfLong = 64;

  explicit FreeParts(const PageTable& table, std::int64_t pages_of_long = kPagesOfLong)
      : table_(table), long_(table.page().sectors(pages_of_long)) {}
  FreeParts(const FreeParts&) = delete;
  FreeParts& operator=(const FreeParts&) = delete;

  // Room for handles below this number. Throws std::bad_alloc, unchanged.
  void provide(std::size_t handles) { nodes_.provide_in_all(kNodesOfHandle * handles); }
  // The stream's runs can be kept. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) {
    if (stream >= streams()) add_streams(stream);
  }

  // Runs make way for others of the same stream, one at least on either side: what was found of those that go is not
  // any more, but for edges that stay as they were. Says which edges of those that come are found: the ones that stay,
  // and those of runs within a page, which have none.
  void change_edges(std::span<const IndexedRun> gone, std::span<IndexedRun> come) noexcept;
  // Likewise of their handles, where a run gets bytes and those of the runs beside it; and where bytes of a run are
  // taken, which leaves the rests before and behind them. Found are those of a long run, and where there are none.
  void join_handles(std::span<const IndexedRun> gone, Sectors begin, Sectors end, IndexedRun& comes) noexcept;
  void part_handles(const IndexedRun& gone, Sectors begin, Sectors end, std::span<IndexedRun> rests) noexcept;
  // From here on all is found.
  void find(IndexedRun& run) noexcept;
  // A run came, beside others that it touches or not; and bytes of one run were taken: what that makes of handles that
  // are free in parts of several streams.
  void came_beside(const FreeRun& run, bool touches_before, bool touches_behind, const FreeRuns& runs);
  void took(Sectors address, Sectors end) noexcept;

  [[nodiscard]] StreamNumber streams() const { return static_cast<StreamNumber>(streams_.size()); }
  [[nodiscard]] Classes classes_of(StreamNumber stream) const;
  // Of all other streams. O(classes of the stream).
  [[nodiscard]] Classes classes_beside(StreamNumber stream) const;
  // As far as they are found. O(log n).
  [[nodiscard]] RunRange runs_of(StreamNumber stream, int size_class) const;
  // Calls visit(stream, its runs) for each stream that has some. O(log n) each.
  template <class Visit>
  void for_each_stream_with(int size_class, Visit&& visit) const {
    for (auto at = runs_.lower_bound({size_class, 0, 0, 0}); at != runs_.end() && at->first.size_class == size_class;) {
      const StreamNumber stream = at->first.stream;
      const auto end = runs_.lower_bound({size_class, stream + 1, 0, 0});
      visit(stream, RunRange{at, end});
      at = end;
    }
  }
  // Those found of the stream, or of all; for a handle is mapped whole and the window goes on beside it.
  [[nodiscard]] FragmentLists endings(StreamNumber stream, bool of_all_streams) const {
    return lists(endings_, stream, of_all_streams);
  }
  [[nodiscard]] FragmentLists beginnings(StreamNumber stream, bool of_all_streams) const {
    return lists(beginnings_, stream, of_all_streams);
  }
  // The homes of handles that are free in parts of several streams.
  [[nodiscard]] const std::pmr::set<Sectors>& shared() const { return shared_; }

  // Throws std::logic_error unless it is what the runs are. Requires: all is found. O(n log n).
  void audit(const FreeRuns& runs) const;

 private:
  static constexpr std::size_t kNodesOfHandle = 3;

  // Streams whose rooms lie in one table.
  static constexpr std::size_t kStreamsOfRoom = 64;

  struct OfStream {
    OfStream(PageSize page, std::pmr::memory_resource* memory, Fragments::Room& room, std::size_t place)
        : endings(page, memory, room, place), beginnings(page, memory, room, place + 1) {}
    Fragments endings;     // reach the end of their handle
    Fragments beginnings;  // begin it
  };
  [[nodiscard]] static FragmentLists lists(FragmentLists all, StreamNumber stream, bool of_all_streams) {
    const auto index = static_cast<std::size_t>(stream);
    return of_all_streams || index >= all.size() ? all.first(of_all_streams ? all.size() : 0) : all.subspan(index, 1);
  }
  void add_streams(StreamNumber last);
  void add_stream_behind();
  [[nodiscard]] OfStream& of(StreamNumber stream) { return streams_[static_cast<std::size_t>(stream)]; }
  // Whether a run's free end of a page is one of its handle, and so the beginning.
  [[nodiscard]] bool ends_handle(const PageTable::Slot& slot) const {
    return slot.page + 1 == table_.pages_of(slot.handle);
  }
  [[nodiscard]] static bool begins_handle(const PageTable::Slot& slot) { return slot.page == 0; }
  // Calls visit(edge, part_of, fragments, is_of_handle) for both edges of a page: how a run's part there is had, where
  // such fragments are, and whether a slot with one is at that edge of its handle.
  template <class Visit>
  void for_each_edge(OfStream& stream, Visit&& visit);
  // Whether the run has no page whole, and so no handle.
  [[nodiscard]] bool has_no_page(const FreeRun& run) const {
    return table_.page().up(run.address) >= table_.page().down(run.end());
  }
  // Handles that lie in the run whole and have a byte of [begin, end), which it has.
  [[nodiscard]] HandleCounts handles_in(const FreeRun& run, Sectors begin, Sectors end) const;
  void add_handles(IndexedRun& run, const HandleCounts& handles) noexcept;
  HandleCounts remove_handles(const IndexedRun& run) noexcept;
  void find_edges(IndexedRun& run) noexcept;
  // Requires: it is not there, and there is a spare node.
  void add_run(const ClassRun& run, std::int32_t handles) noexcept;
  // How many handles it had. Requires: it is there.
  std::int32_t remove_run(const ClassRun& run) noexcept;
  void add_if_shared(PageTable::Handle handle, const FreeRuns& runs);
  void audit_handles(const FreeRuns& runs) const;

  const PageTable& table_;
  Sectors long_;
  SpareNodes nodes_;
  Runs runs_{&nodes_};
  std::vector<Fragments::Room> rooms_;  // for the fragments of so many streams each: most have none
  std::deque<OfStream> streams_;
  std::vector<Classes> classes_;                               // of each stream
  std::array<StreamNumber, HandleCounts::kClasses> having_{};  // so many streams have the class
  Classes classes_of_all_ = 0;                                 // that some stream has
  std::vector<const Fragments*> endings_, beginnings_;         // of each stream
  std::pmr::set<Sectors> shared_{&nodes_};
};

}  // namespace cistern
