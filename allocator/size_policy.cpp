#include "allocator/size_policy.h"

#include <algorithm>
#include <bit>

namespace cistern {
namespace {

// floor(log2(size in MiB)), within 0..15.
std::size_t divisions_bucket(std::size_t bytes) {
  const int log = static_cast<int>(std::bit_width(bytes)) - 1 - 20;
  return static_cast<std::size_t>(std::clamp(log, 0, 15));
}

}  // namespace

SizePolicy::SizePolicy(const AllocatorOptions& options)
    : one_segment_each_(options.policy == Policy::direct || options.policy == Policy::async),
      splits_finely_(options.policy == Policy::expandable),
      least_rest_{kMinBlockSize, splits_finely_ ? kMinBlockSize : kSmallSize + 1},
      max_split_size_(one_segment_each_ ? kUnlimited : options.max_split_size_bytes),
      max_non_split_rounding_(options.max_non_split_rounding_bytes),
      divisions_(options.roundup_power2_divisions),
      any_divisions_(std::any_of(divisions_.begin(), divisions_.end(), [](std::uint32_t value) { return value > 1; })) {
}

std::size_t SizePolicy::round_finely(std::size_t bytes) const {
  const std::size_t divisions = divisions_[divisions_bucket(bytes)];
  if (divisions > 1 && bytes > kMinBlockSize * divisions) return round_by_divisions(bytes, divisions);
  return round_up(bytes, kMinBlockSize);
}

std::size_t SizePolicy::round_by_divisions(std::size_t bytes, std::size_t divisions) const {
  if (std::has_single_bit(bytes)) return bytes;
  const std::size_t power = std::bit_floor(bytes);
  const std::size_t step = power / divisions;
  return step == 0 ? power * 2 : round_up(bytes, step);
}

}  // namespace cistern
