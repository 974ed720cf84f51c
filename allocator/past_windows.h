#pragma once

// Address ranges that were mapped for a request once and stay mapped: found again by size.
//
// Complexity: O(1) expected for a size, O(log n) for a longer one, and at most 8 or 16 questions. Not thread-safe: the
// heap's lock is held.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "allocator/free_runs.h"
#include "allocator/hash_index.h"
#include "allocator/page_size.h"

namespace cistern {

class PastWindows {
 public:
  // A window for requests of just this size, if the index has room for that. Throws std::bad_alloc, with what there was
  // as it was.
  void note_exact(Sectors sectors, StreamNumber stream, Sectors address);
  // One that may serve smaller requests, too.
  void note_length(Sectors sectors, StreamNumber stream, Sectors address);

  void forget() {
    sizes_.clear();
    exact_.clear();
    by_length_.clear();
  }

  // Has the processor bring what `exact` looks at first: most sizes have none, and are looked for in no cache.
  void fetch(Sectors sectors, StreamNumber stream) const noexcept { sizes_.fetch(HashIndex::tag_of(sectors, stream)); }
  // The newest of the last 8 of this size for which is_usable(address) holds.
  template <class IsUsable>
  [[nodiscard]] std::optional<Sectors> exact(Sectors sectors, StreamNumber stream, IsUsable&& is_usable) const {
    const HashIndex::Number found = find(sectors, stream);
    if (found == HashIndex::kNone) return std::nullopt;
    const std::vector<Sectors>& windows = exact_[found].windows;
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

  struct OfSize {
    Sectors sectors;
    StreamNumber stream;
    std::vector<Sectors> windows;  // oldest first
  };
  // Which of `exact_` has the windows of this size; none: there are none.
  [[nodiscard]] HashIndex::Number find(Sectors sectors, StreamNumber stream) const {
    return sizes_.find(HashIndex::tag_of(sectors, stream), [&](HashIndex::Number number) {
      return exact_[number].sectors == sectors && exact_[number].stream == stream;
    });
  }

  HashIndex sizes_;  // which of the next list is of a size
  std::vector<OfSize> exact_;
  std::vector<ByLength> by_length_;  // a stream
};

}  // namespace cistern
