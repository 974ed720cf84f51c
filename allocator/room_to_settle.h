#pragma once

// Memory beyond what was ever live, for steps whose blocks wait for other streams.
//
// Steps that come again gather no more soon, where their blocks are free at once. Those that wait leave bytes that are
// free together only by chance, and in the least memory each step gathers others; in more it comes to rest. So handles
// that are gathered while a sixteenth of the memory waits count: at four times what there is an eighth more may be
// created before free handles are gathered, and twice as many are needed for the next eighth. In all it is as much
// again as there was. What is remembered of places is of less memory then.
// Complexity: O(1).
// Not thread-safe: guarded by the heap's lock.

#include <algorithm>
#include <cstdint>

#include "allocator/page_size.h"

namespace cistern {

class RoomToSettle {
 public:
  // Pages that may be created up to; 0: no more than is needed.
  [[nodiscard]] std::int64_t pages() const noexcept { return pages_; }
  // A request gathered so many handles that there were, of `all` sectors in `pages`, of which so many wait. Whether
  // there is more room from here on.
  [[nodiscard]] bool gathered(std::int64_t handles, Sectors waits, Sectors all, std::int64_t pages) noexcept {
    if (kShareThatWaits * waits < all) return false;
    gathered_ += handles;
    if (gathered_ <= patience_ * pages) return false;
    gathered_ = 0;
    patience_ = std::min(2 * patience_, kMostPatience);
    if (from_ == 0) from_ = pages;
    const std::int64_t before = std::max(pages, pages_);
    pages_ = std::min(pages + std::max<std::int64_t>(pages / kShareOfRoom, 1), kMostRoom * from_);
    return pages_ > before;
  }
  // Memory went, so that there are `pages`; or the device has none, or it is wanted elsewhere.
  void end(std::int64_t pages) noexcept {
    pages_ = gathered_ = 0;
    if (pages > from_) return;
    from_ = 0;
    patience_ = kPatience;
  }

 private:
  static constexpr std::int64_t kShareThatWaits = 16;
  static constexpr std::int64_t kShareOfRoom = 8;
  static constexpr std::int64_t kMostRoom = 2;
  static constexpr std::int64_t kPatience = 4;
  static constexpr std::int64_t kMostPatience = std::int64_t{1} << 20;

  std::int64_t pages_ = 0;
  std::int64_t from_ = 0;      // the pages that there were before; 0: they have no more
  std::int64_t gathered_ = 0;  // handles, since there was room last
  std::int64_t patience_ = kPatience;
};

}  // namespace cistern
