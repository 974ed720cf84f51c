#pragma once

// Which stream had whose free bytes in paged memory, how often it had to wait for that, and which streams waited so
// often that they stand alone: they take no others' bytes any more.
//
// A stream stands alone when it was stalled 16 times while 32 blocks came to it: streams that alternate, or that hand
// buffers on, would do one after the other what they could do at once (decision 33). What is held up with no free of
// the stream's in between is one stall: who asks for many blocks at once waits once.
// Complexity: O(1) expected, to forget a stream O(streams). Not thread-safe: the heap's lock is held.

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "allocator/free_runs.h"

namespace cistern {

class HandOverTally {
 public:
  struct Pair {
    std::int64_t hand_overs = 0;  // requests of `to` that took bytes of `from`
    std::int64_t bytes = 0;
    std::int64_t held_up = 0;  // of these requests: they wait on the device for work that was not done
  };

  // `note` of these pairs, and `held_up`, take no host memory from here on. Throws std::bad_alloc.
  void provide(StreamNumber to, std::span<const StreamNumber> from);
  // Requires: provide.
  void note(StreamNumber to, StreamNumber from, std::int64_t bytes, bool is_held_up) noexcept;
  // A request was held up, when so many blocks had come to the stream, and so many had been freed. Requires: provide.
  void held_up(StreamNumber to, std::int64_t came, std::int64_t went) noexcept;
  [[nodiscard]] bool stands_alone(StreamNumber stream) const {
    const auto index = static_cast<std::size_t>(stream);
    return index < streams_.size() && streams_[index].stands_alone;
  }

  // Nobody stands alone: memory is shared anew.
  void share_anew() noexcept;
  // The number is to be another stream's.
  void forget(StreamNumber stream) noexcept;
  // The figures of all pairs become 0.
  void reset() noexcept { pairs_.clear(); }
  // Calls visit(to, from, Pair) for each pair with a figure, in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [key, pair] : pairs_)
      if (pair.hand_overs != 0)
        visit(static_cast<StreamNumber>(key >> 32), static_cast<StreamNumber>(key & ~std::uint32_t{0}), pair);
  }

 private:
  struct Stream {
    std::int64_t began = 0;  // blocks that had come when the stalls began to be counted
    std::int64_t went = -1;  // had been freed at the last of them
    int stalls = 0;
    bool stands_alone = false;
  };

  [[nodiscard]] static std::uint64_t key_of(StreamNumber to, StreamNumber from) {
    return static_cast<std::uint64_t>(to) << 32 | static_cast<std::uint32_t>(from);
  }

  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::vector<Stream> streams_;  // by number; of all that are in pairs
};

}  // namespace cistern
