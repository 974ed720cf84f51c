#pragma once

// What a snapshot shows of paged memory: a stream's blocks and free runs, as segments that are as long as its bytes
// follow each other. Every byte of every handle is in one of them.
//
// Thread safety: values of one snapshot.

#include <cistern/snapshot.h>

#include "allocator/free_run.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

// The addresses of an arena.
struct PagedRange {
  std::uint64_t address = 0;
  std::size_t bytes = 0;
};

// The segments of one stream, by address. `of_stream` says what is the same of all; `pieces` are its blocks, live,
// pending and free. Requires: no two overlap, and each lies in one of the ranges.
[[nodiscard]] std::vector<SegmentInfo> lay_out(const SegmentInfo& of_stream, std::vector<BlockInfo> pieces,
                                               const std::vector<PagedRange>& ranges);

// A free run as a snapshot shows it.
[[nodiscard]] BlockInfo free_block(std::uint64_t address, std::size_t bytes);

// The free runs of a heap's streams, as they were at one moment.
struct PagedCut {
  struct Run {
    StreamNumber stream = 0;
    std::uint64_t address = 0;
    std::size_t bytes = 0;
  };
  struct Size {
    std::size_t runs = 0;
    std::size_t streams = 0;
    std::size_t ranges = 0;
  };
  // Throws std::bad_alloc.
  void reserve(const Size& size);
  [[nodiscard]] bool has_room_for(const Size& size) const;
  // Replaces what stands for streams, the last of the segments, with their live and pending blocks, by what is to be
  // shown. Sorts `runs`. O(n log n).
  void lay_out(std::vector<SegmentInfo>& all);

  std::vector<Run> runs;
  std::vector<StreamNumber> streams;  // ascending
  std::vector<PagedRange> ranges;
};

}  // namespace cistern
