#pragma once

// Hashes for tables whose keys come from a file: with a seed of the process's own, so that nobody can make a file
// whose keys meet in one bucket.
//
// Thread safety: functions of their arguments alone.

#include <cstdint>
#include <string_view>

namespace cistern {

// SipHash-1-3 (Aumasson and Bernstein) under the process's seed.
[[nodiscard]] std::uint64_t seeded_hash(std::string_view bytes);

// For the standard's tables, of texts and of numbers.
struct SeededHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return static_cast<std::size_t>(seeded_hash(text)); }
  std::size_t operator()(std::uint64_t number) const {
    return static_cast<std::size_t>(seeded_hash({reinterpret_cast<const char*>(&number), sizeof number}));
  }
};

}  // namespace cistern
