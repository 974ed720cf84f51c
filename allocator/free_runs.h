#pragma once

// The free bytes of handles at home, as maximal runs of one stream: found by address and by size. What else is to be
// found in them is told of each that goes, and of those that came when it is asked for.
//
// A run has a node of its own, which two indexes and a list by address go through.
//
// Invariant: runs do not overlap, and those of one stream do not touch.
// Complexity: a run touched and a search by address as RunsBySize and RunsByAddress have them, and what `parts` takes.
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/free_parts.h"
#include "allocator/free_run.h"
#include "allocator/growing_table.h"
#include "allocator/indexed_run.h"
#include "allocator/page_size.h"
#include "allocator/run_nodes.h"
#include "allocator/runs_by_address.h"
#include "allocator/runs_by_size.h"

namespace cistern {

class FreeRuns {
 public:
  // `parts` is told of runs, and kept by the caller; none: nobody is.
  explicit FreeRuns(FreeParts* parts = nullptr) : parts_(parts) {}
  FreeRuns(const FreeRuns&) = delete;
  FreeRuns& operator=(const FreeRuns&) = delete;

  // From here on so many more runs can come, by a give or a take of part of one, without host memory; until
  // drop_room. Throws std::bad_alloc, unchanged. O(1), and O(pages) every now and then.
  void keep_room(std::size_t runs) {
    provide(kept_ + runs);
    kept_ += runs;
  }
  void drop_room(std::size_t runs) noexcept { kept_ -= runs; }
  // Whether keep_room would do nothing else.
  [[nodiscard]] bool has_room(std::size_t runs) const noexcept { return nodes_.has_room_for(size_ + kept_ + runs); }
  // The stream's runs can be kept. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) {
    by_size_.add_stream(stream);
    if (parts_ != nullptr) parts_->add_stream(stream);
  }
  // Brings what makes many of its runs as fast to find as few, if it has many now. Throws std::bad_alloc, unchanged.
  // O(1), and O(n log n) once. Requires: add_stream.
  void provide_for_many(StreamNumber stream) { by_size_.provide_bins(stream); }
  // Runs can begin before that address, in its arena. Throws std::bad_alloc, unchanged. O(1), and O(addresses) every
  // now and then.
  void provide_addresses(Sectors end) { by_address_.provide(end - 1); }

  // Requires: none of it is free. One more run at most; throws std::bad_alloc if there is no room.
  void give(Sectors address, Sectors count, StreamNumber stream);
  // Requires: is_free. Adds to `taken` what was taken, in pieces of one stream each. One more run at most; throws
  // std::bad_alloc if there is no room, here or in `taken`.
  void take(Sectors address, Sectors count, std::vector<FreeRun>& taken);
  // The same of what lies in one run, up to `end`. Requires: `address` is in it.
  FreeRun take_of(RunNumber number, Sectors address, Sectors end);
  // The same without a list.
  void take(Sectors address, Sectors count);
  // Whether all of it is free, on whatever stream.
  [[nodiscard]] bool is_free(Sectors address, Sectors count) const;
  // The same on one stream.
  [[nodiscard]] bool is_free_of(Sectors address, Sectors count, StreamNumber stream) const;
  // How much of it is free, on whatever stream.
  [[nodiscard]] Sectors sectors_in(Sectors address, Sectors count) const;
  // Whether all of it is in one run.
  [[nodiscard]] bool is_one_run(Sectors address, Sectors count) const;
  // How many pieces `take` adds. Requires: is_free.
  [[nodiscard]] std::size_t pieces(Sectors address, Sectors count) const;

  // Has the processor bring what a give there looks at first.
  void fetch(Sectors address) const noexcept { by_address_.fetch(address); }
  // And what it looks at next. Waits for the former.
  void fetch_first(Sectors address) const noexcept { by_address_.fetch_first(address); }
  // The run that holds the address; none: no run does.
  [[nodiscard]] RunNumber holding(Sectors address) const noexcept {
    const RunNumber number = by_address_.last_up_to(address);
    return number != kNoRun && nodes_[number].end() > address ? number : kNoRun;
  }
  // The run of the stream that ends there.
  [[nodiscard]] std::optional<FreeRun> ending_at(Sectors end, StreamNumber stream) const;
  [[nodiscard]] const RunsBySize& by_size() const { return by_size_; }
  [[nodiscard]] bool has_any_of(StreamNumber stream) const noexcept { return by_size_.has_any_of(stream); }
  // From the first byte of the runs around this one that touch each other, of whichever streams, to the last: as of one
  // run. Requires: it is free. O(runs in it).
  [[nodiscard]] FreeRun stretch_around(Sectors address) const;
  // Calls visit(FreeRun) for each run, by address.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (RunNumber at = first_; at != kNoRun; at = nodes_[at].behind) visit(nodes_[at].run());
  }
  // From the run that holds `address`, or the first behind it, as long as visit(FreeRun) returns true.
  template <class Visit>
  void for_each_from(Sectors address, Visit&& visit) const {
    const RunNumber before = by_address_.last_up_to(address);
    RunNumber at = before == kNoRun ? first_ : before;
    if (before != kNoRun && nodes_[before].end() <= address) at = nodes_[before].behind;
    while (at != kNoRun && visit(nodes_[at].run())) at = nodes_[at].behind;
  }
  // What they offer is found in `parts`. For each run that came since the last time, what `parts` takes;
  // also O(n) where these were many.
  void find_parts() noexcept;

  [[nodiscard]] Sectors sectors() const { return sectors_; }
  [[nodiscard]] Sectors sectors_of(StreamNumber stream) const;

  // Throws std::logic_error where the invariant does not hold. O(n log n).
  void audit() const;

 private:
  // So many more can come. Throws std::bad_alloc, unchanged.
  void provide(std::size_t runs) {
    if (!nodes_.has_room_for(size_ + runs)) grow(size_ + runs);
  }
  [[gnu::noinline]] void grow(std::size_t runs);
  // Behind that one; none: the first. Requires: it is provided for.
  void add(const IndexedRun& run, RunNumber before) noexcept;
  void remove(RunNumber number) noexcept;
  // The same run has other bounds, between the same others.
  void change(RunNumber number, const IndexedRun& to) noexcept;
  // What it offers is to be found.
  void note_unfound(RunNumber number) noexcept;
  void find_parts(RunNumber number) noexcept;

  FreeParts* parts_;
  RunNodes nodes_;
  RunsByAddress by_address_{nodes_};
  RunsBySize by_size_{nodes_};
  RunNumber first_ = kNoRun;  // by address
  std::size_t size_ = 0;
  Sectors sectors_ = 0;
  std::size_t kept_ = 0;  // room for so many runs is kept
  // Runs of which not all was found, some of them. They may be gone since, or others.
  GrowingList<RunNumber> unfound_;
  bool has_more_unfound_ = false;
};

}  // namespace cistern
