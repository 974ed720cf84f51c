#pragma once

// BitTree: a set of small numbers, in which the next and the one before are found.
//
// A bit for each number, and above each level one for each of its words that has any. Takes an eighth of a byte a
// number. Complexity: O(kLevels), for up to 64^kLevels numbers; mostly one word is looked at. Not thread-safe.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

template <std::size_t kLevels>
class BitTree {
 public:
  static constexpr std::size_t kNone = ~std::size_t{0};
  static_assert(kLevels > 0 && kLevels <= 10);
  static constexpr std::size_t kMost = std::size_t{1} << 6 * kLevels;

  // Numbers below `numbers` can be set from here on; never fewer. Requires: no more than kMost. Throws std::bad_alloc,
  // unchanged in what shows.
  void provide(std::size_t numbers) {
    // From above: what is said of the numbers' own level holds for all.
    for (std::size_t level = kLevels; level-- != 0;) {
      const std::size_t of_bit = std::size_t{1} << 6 * level;  // so many numbers
      const std::size_t words = (numbers + 64 * of_bit - 1) / of_bit / 64;
      if (levels_[level].size() < words) levels_[level].resize(words);
    }
  }

  // Requires of these: it is provided for.
  void set(std::size_t number) noexcept {
    for (std::vector<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[number / 64];
      const bool had_some = word != 0;
      word |= bit_of(number);
      if (had_some) return;
      number /= 64;
    }
  }
  void clear(std::size_t number) noexcept {
    for (std::vector<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[number / 64];
      word &= ~bit_of(number);
      if (word != 0) return;
      number /= 64;
    }
  }

  // The least that is set and not below `from`, and the greatest that is not above; kNone: there is none.
  [[nodiscard]] std::size_t next(std::size_t from) const noexcept {
    for (std::size_t level = 0; level < kLevels && from / 64 < levels_[level].size(); ++level) {
      if (const std::uint64_t left = word_of(level, from) & ~(bit_of(from) - 1); left != 0)
        return least_below(level, from / 64 * 64 + static_cast<std::size_t>(std::countr_zero(left)));
      from = from / 64 + 1;
    }
    return kNone;
  }
  [[nodiscard]] std::size_t previous(std::size_t from) const noexcept {
    if (const std::size_t all = levels_.front().size() * 64; from >= all) {
      if (all == 0) return kNone;
      from = all - 1;
    }
    for (std::size_t level = 0;; ++level) {
      if (const std::uint64_t left = word_of(level, from) & (bit_of(from) | (bit_of(from) - 1)); left != 0)
        return greatest_below(level, from / 64 * 64 + static_cast<std::size_t>(std::bit_width(left)) - 1);
      from /= 64;
      if (from == 0) return kNone;
      --from;
    }
  }
  [[nodiscard]] bool empty() const noexcept { return levels_.back().empty() || levels_.back().front() == 0; }

 private:
  [[nodiscard]] static std::uint64_t bit_of(std::size_t number) noexcept { return std::uint64_t{1} << number % 64; }
  [[nodiscard]] std::uint64_t word_of(std::size_t level, std::size_t number) const noexcept {
    return levels_[level][number / 64];
  }
  // Of the numbers whose bit on the level above is `at`.
  [[nodiscard]] std::size_t least_below(std::size_t level, std::size_t at) const noexcept {
    while (level-- != 0) at = at * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][at]));
    return at;
  }
  [[nodiscard]] std::size_t greatest_below(std::size_t level, std::size_t at) const noexcept {
    while (level-- != 0) at = at * 64 + static_cast<std::size_t>(std::bit_width(levels_[level][at])) - 1;
    return at;
  }

  std::array<std::vector<std::uint64_t>, kLevels> levels_;  // the numbers' own first
};

}  // namespace cistern
