#pragma once

// SizePolicy: how a request becomes a block's and a segment's size, which pool serves it,
// and when a block is split. The rules of `classic` and of `expandable` are PyTorch's, exactly
// (see docs/options.md); `direct` takes requests as they are, one segment each.
//
// Thread safety: a value; const members only.

#include <cistern/options.h>

#include "stats/recorder.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace cistern {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
// All block sizes are multiples of this.
inline constexpr std::size_t kMinBlockSize = 512;
// Rounded requests up to this size are served by the small pool.
inline constexpr std::size_t kSmallSize = kMiB;
inline constexpr std::size_t kSmallSegment = 2 * kMiB;
// Segments for rounded requests above kSmallSize and below kMinLargeAlloc.
inline constexpr std::size_t kLargeSegment = 20 * kMiB;
// Of an expandable segment.
[[nodiscard]] constexpr std::size_t page_bytes_of(PoolKind kind) {
  return kind == PoolKind::small ? kSmallSegment : kLargeSegment;
}
inline constexpr std::size_t kMinLargeAlloc = 10 * kMiB;
inline constexpr std::size_t kRoundLarge = 2 * kMiB;
// Requests from here on are refused before any arithmetic that could overflow.
inline constexpr std::size_t kTooLarge = std::size_t{1} << 60;

class SizePolicy {
 public:
  explicit SizePolicy(const AllocatorOptions& options);

  // Requires: bytes < kTooLarge.
  [[nodiscard]] std::size_t round(std::size_t bytes) const {
    if (bytes < kMinBlockSize) return kMinBlockSize;
    return any_divisions_ ? round_finely(bytes) : round_up(bytes, kMinBlockSize);
  }
  [[nodiscard]] PoolKind pool(std::size_t rounded) const {
    return rounded <= kSmallSize ? PoolKind::small : PoolKind::large;
  }
  [[nodiscard]] std::size_t segment_bytes(std::size_t rounded) const {
    if (one_segment_each_) return rounded;
    if (rounded <= kSmallSize) return kSmallSegment;
    if (rounded < kMinLargeAlloc) return kLargeSegment;
    return round_up(rounded, kRoundLarge);
  }
  // Whether the best-fitting free block may serve a request. Requires: it is large enough.
  [[nodiscard]] bool may_serve(std::size_t block_bytes, std::size_t rounded) const {
    if (rounded < max_split_size_) return block_bytes < max_split_size_;
    return block_bytes - rounded < max_non_split_rounding_;
  }
  // Whether what is left of the block becomes a free block of its own.
  [[nodiscard]] bool should_split(std::size_t block_bytes, std::size_t rounded, PoolKind pool) const {
    const bool rest_serves = block_bytes - rounded >= least_rest_[static_cast<std::size_t>(pool)];
    return rest_serves && (rounded < max_split_size_ || pool == PoolKind::small || splits_finely_);
  }
  [[nodiscard]] bool is_oversize(std::size_t bytes) const { return bytes >= max_split_size_; }
  [[nodiscard]] std::size_t max_split_size() const { return max_split_size_; }

 private:
  [[nodiscard]] static constexpr std::size_t round_up(std::size_t bytes, std::size_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
  }
  [[nodiscard, gnu::noinline]] std::size_t round_finely(std::size_t bytes) const;
  [[nodiscard]] std::size_t round_by_divisions(std::size_t bytes, std::size_t divisions) const;

  bool one_segment_each_;
  bool splits_finely_;
  std::array<std::size_t, 2> least_rest_;  // that becomes a block, by pool
  std::size_t max_split_size_;
  std::size_t max_non_split_rounding_;
  std::array<std::uint32_t, 16> divisions_;
  bool any_divisions_ = false;
};

}  // namespace cistern
