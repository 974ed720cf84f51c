#pragma once

// Address ranges that were mapped for a request once and stay mapped: found again by size.
//
// Complexity: O(1) expected for a size, O(log n) for a longer one, and at most 8 or 16 questions. Not thread-safe: the
// heap's lock is held.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/page_size.h"

namespace cistern {

class PastWindows {
 public:
  // A window for requests of just this size.
  void note_exact(Sectors sectors, StreamNumber stream, Sectors address);
  // One that may serve smaller requests, too.
  void note_length(Sectors sectors, StreamNumber stream, Sectors address);

  void forget() {
    exact_.clear();
    by_length_.clear();
  }

  // The newest of the last 8 of this size for which is_usable(address) holds.
  template <class IsUsable>
  [[nodiscard]] std::optional<Sectors> exact(Sectors sectors, StreamNumber stream, IsUsable&& is_usable) const {
    const auto found = exact_.find({sectors, stream});
    if (found == exact_.end()) return std::nullopt;
    const std::vector<Sectors>& windows = found->second;
    for (std::size_t i = 0; i < windows.size(); ++i)
      if (const Sectors address = windows[windows.size() - 1 - i]; is_usable(address)) return address;
    return std::nullopt;
  }
  // The shortest of the stream that is up to a quarter longer, if one of the first 16 is usable.
  template <class IsUsable>
  [[nodiscard]] std::optional<Sectors> longer(Sectors sectors, StreamNumber stream, IsUsable&& is_usable) const {
    const auto index = static_cast<std::size_t>(stream);
    if (index >= by_length_.size()) return std::nullopt;
    const ByLength& windows = by_length_[index];
    int tries = 0;
    for (auto at = windows.lower_bound({sectors, 0});
         tries < kTries && at != windows.end() && at->first <= sectors + sectors / 4; ++at, ++tries)
      if (is_usable(at->second)) return at->second;
    return std::nullopt;
  }

 private:
  using ByLength = std::set<std::pair<Sectors, Sectors>>;  // sectors, address
  static constexpr std::size_t kKept = 8;
  static constexpr int kTries = 16;

  struct Hash {
    [[nodiscard]] std::size_t operator()(const std::pair<Sectors, StreamNumber>& of) const noexcept {
      const auto bits = static_cast<std::uint64_t>(of.first) + (static_cast<std::uint64_t>(of.second) << 48);
      return bits * 0x9E3779B97F4A7C15ULL >> 16;
    }
  };

  std::unordered_map<std::pair<Sectors, StreamNumber>, std::vector<Sectors>, Hash> exact_;  // oldest first
  std::vector<ByLength> by_length_;                                                         // a stream
};

}  // namespace cistern
