#pragma once

// Whether sizes come again: of a stream's requests of a page and more that went by its free runs, for neither the
// log nor a window knew them, and that one held, the share that a run of just their size held, the last ones weighing
// more.
//
// What a block left free is asked for again where steps come again, and then a request may well go into a larger run
// to keep whole pages free. Where it hardly ever is, that only parts the large runs. Small sizes say nothing: there are
// few of them, so that some run is of just that size always.
// Complexity: O(1).
// Not thread-safe: guarded by the heap's lock, or by a stream's turn in pages (StreamHits::turn_in_pages).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/free_run.h"

namespace cistern {

class ExactFits {
 public:
  // What is found for the stream can be noted. Throws std::bad_alloc, unchanged.
  void add_stream(StreamNumber stream) {
    if (shares_.size() <= static_cast<std::size_t>(stream)) shares_.resize(static_cast<std::size_t>(stream) + 1, kAll);
  }
  // A run held such a request. Requires: add_stream.
  void found(StreamNumber stream, bool is_exact) noexcept {
    std::int32_t& share = shares_[static_cast<std::size_t>(stream)];
    share += ((is_exact ? kAll : 0) - share) / kLastsOfAll;
  }
  // Until that is known they are not.
  [[nodiscard]] bool are_rare(StreamNumber stream) const noexcept {
    const auto index = static_cast<std::size_t>(stream);
    return index < shares_.size() && shares_[index] < kRare;
  }

 private:
  static constexpr std::int32_t kAll = 1 << 24;
  static constexpr std::int32_t kLastsOfAll = 256;
  // Counted from half a page on random sizes have 0.1 to 3.5 %, of the traces studied synth-etl 0.7, serve-azure-conv
  // and synth-sawtooth 5, others from 9 (synth-llm-infer-chunk, in some steps less) to 70 %.
  static constexpr std::int32_t kRare = kAll / 25;

  std::vector<std::int32_t> shares_;  // of kAll
};

}  // namespace cistern
