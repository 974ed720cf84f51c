#pragma once

// The sizes of page-locked blocks: classes up to 1 MiB, whole pages above.
//
// A block is larger than what was asked for by less than an eighth (or, below 512 bytes, by at most 63 bytes): two
// blocks share no cache line of 64 bytes. Above 1 MiB it is larger by less than a page of 4 KiB.
// Thread safety: values.

#include "stats/recorder.h"

#include <bit>
#include <cstddef>

namespace cistern::host_sizes {

inline constexpr std::size_t kAlignment = 64;  // of every block
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kLargestClass = std::size_t{1} << 20;
// What blocks of classes are cut from.
inline constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
// From here on requests are refused before any arithmetic that could overflow.
inline constexpr std::size_t kTooLarge = std::size_t{1} << 60;

[[nodiscard]] constexpr std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// Requires: 0 < bytes < kTooLarge.
[[nodiscard]] constexpr std::size_t round(std::size_t bytes) {
  constexpr std::size_t classes = 8;  // between a power of two and the next
  if (bytes <= classes * kAlignment) return round_up(bytes, kAlignment);
  if (bytes <= kLargestClass) return round_up(bytes, std::bit_floor(bytes - 1) / classes);
  return round_up(bytes, kPage);
}

[[nodiscard]] constexpr PoolKind pool(std::size_t rounded) {
  return rounded <= kLargestClass ? PoolKind::small : PoolKind::large;
}

}  // namespace cistern::host_sizes
