#pragma once

// The free bytes of handles at home, as maximal runs of one stream: found by address and by size. What else is to be
// found in them is told of each that goes, and of those that came when it is asked for.
//
// Invariant: runs do not overlap, and those of one stream do not touch.
// Complexity: as SortedChunks a run touched, and what `parts` takes.
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/free_parts.h"
#include "allocator/free_run.h"
#include "allocator/page_size.h"
#include "allocator/runs_by_size.h"
#include "allocator/sorted_chunks.h"

namespace cistern {

class FreeRuns {
 public:
  // `parts` is told of runs, and kept by the caller; none: nobody is.
  explicit FreeRuns(FreeParts* parts = nullptr) : parts_(parts) {}
  FreeRuns(const FreeRuns&) = delete;
  FreeRuns& operator=(const FreeRuns&) = delete;

  // From here on so many more runs can come, by a give or a take of part of one, without host memory; until
  // drop_room. Throws std::bad_alloc, unchanged. O(1), and O(n) every now and then.
  void keep_room(std::size_t runs);
  void drop_room(std::size_t runs) noexcept { kept_ -= runs; }
  // Whether keep_room would do nothing else.
  [[nodiscard]] bool has_room(std::size_t runs) const noexcept {
    const std::size_t all = runs_.size() + kept_ + runs;
    return runs_.has_room_for(all) && by_size_.has_room_for(all);
  }
  // The stream's runs can be kept. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream);

  // Requires: none of it is free. One more run at most; throws std::bad_alloc if there is no room.
  void give(Sectors address, Sectors count, StreamNumber stream);
  // Requires: is_free. Adds to `taken` what was taken, in pieces of one stream each. One more run at most; throws
  // std::bad_alloc if there is no room, here or in `taken`.
  void take(Sectors address, Sectors count, std::vector<FreeRun>& taken);
  // The same of what lies in the run that `address` is in, up to `end`. Requires: `address` is free.
  FreeRun take_first(Sectors address, Sectors end);
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

  // The run of the stream that ends there.
  [[nodiscard]] std::optional<FreeRun> ending_at(Sectors end, StreamNumber stream) const;
  [[nodiscard]] const RunsBySize& by_size() const { return by_size_; }
  [[nodiscard]] bool has_any_of(StreamNumber stream) const;
  // From the first byte of the runs around this one that touch each other, of whichever streams, to the last: as of one
  // run. Requires: it is free. O(runs in it).
  [[nodiscard]] FreeRun stretch_around(Sectors address) const;
  // Calls visit(FreeRun) for each run, by address.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (Place at = runs_.begin(); at != runs_.end(); at = runs_.next(at)) visit(runs_[at].run());
  }
  // From the run that holds `address`, or the first behind it, as long as visit(FreeRun) returns true.
  template <class Visit>
  void for_each_from(Sectors address, Visit&& visit) const {
    Place at = holding(address);
    if (at == runs_.end()) at = runs_.lower_bound(address);
    while (at != runs_.end() && visit(runs_[at].run())) at = runs_.next(at);
  }
  // What they offer is found in `parts`. For each run that came since the last time, O(log n) and what `parts` takes;
  // also O(n) where these were many.
  void find_parts() noexcept;

  [[nodiscard]] Sectors sectors() const { return sectors_; }
  [[nodiscard]] Sectors sectors_of(StreamNumber stream) const;

  // Throws std::logic_error where the invariant does not hold. O(n log n).
  void audit() const;

 private:
  static constexpr std::uint32_t kStreamMask = (std::uint32_t{1} << 29) - 1;  // there are never so many
  struct Run {
    Sectors address;
    Sectors sectors;
    // As IndexedRun has them.
    std::uint32_t stream : 29;
    std::uint32_t found : 3;
    HandleCounts::Classes classes;
    Run() = default;
    explicit Run(const IndexedRun& indexed)
        : address(indexed.run.address),
          sectors(indexed.run.sectors),
          stream(static_cast<std::uint32_t>(indexed.run.stream) & kStreamMask),
          found(indexed.found & IndexedRun::kAll),
          classes(indexed.classes) {}
    [[nodiscard]] Sectors end() const { return address + sectors; }
    [[nodiscard]] FreeRun run() const { return {address, sectors, static_cast<StreamNumber>(stream)}; }
    [[nodiscard]] IndexedRun indexed() const { return {run(), found, classes}; }
  };
  struct Address {
    [[nodiscard]] Sectors operator()(const Run& run) const { return run.address; }
  };
  using ByAddress = SortedChunks<Run, Address>;
  using Place = ByAddress::Position;

  // So many more can come. Throws std::bad_alloc, unchanged in what shows.
  void provide(std::size_t runs);
  // Requires: it is provided for.
  void add(const IndexedRun& run) noexcept;
  void remove(Place place) noexcept;
  // The same run has other bounds, between the same others.
  void change(Place place, const IndexedRun& to) noexcept;
  // What it offers is to be found.
  void note_unfound(Sectors address) noexcept;
  void find_parts(Place place) noexcept;
  // The end: none does.
  [[nodiscard]] Place holding(Sectors address) const;

  FreeParts* parts_;
  ByAddress runs_;
  RunsBySize by_size_;
  Sectors sectors_ = 0;
  std::size_t kept_ = 0;  // room for so many runs is kept
  // Where runs began of which not all is found: as many as there is room for.
  std::vector<Sectors> unfound_;
  bool has_more_unfound_ = false;
};

}  // namespace cistern
