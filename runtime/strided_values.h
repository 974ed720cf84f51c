#pragma once

// Strided work done by the host: what the simulated driver does in stream order, and what memory of the
// host itself is packed by.
//
// Thread safety: all functions may be called from any thread.

#include <cstdint>
#include <vector>

#include "runtime/strided_work.h"

namespace cistern {

// Both sides are the host's own addresses.
void run_strided(const StridedWork& work) noexcept;

// Bytes from `first` up to `end`.
struct ByteRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
};
// What elements with these strides are, by ascending address: neighbours are one range. Above `limit` ranges the
// one from the first byte to the last.
[[nodiscard]] std::vector<ByteRange> ranges_of(std::uint64_t address, const StridedWork& work,
                                               const std::int64_t* strides, std::size_t limit);

// The same elements in another order: extents of 1 are dropped, and what is one run on both sides is joined, so
// that few extents are left.
void simplify(StridedWork& work) noexcept;
// Of simplified work: both sides are plain runs.
[[nodiscard]] bool is_plain_run(const StridedWork& work) noexcept;

}  // namespace cistern
