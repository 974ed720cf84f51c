#pragma once

// The bound of docs/paged-policy.md, followed through a program.

#include <algorithm>
#include <cstdint>

#include "allocator/page_size.h"

namespace cistern {

class PagedBound {
 public:
  explicit PagedBound(PageSize page) : page_(page) {}

  // After an operation: what is live, and the pages of the handles in which a byte is live or pending.
  void note(Sectors live, std::int64_t pages_in_use) {
    peak_live_ = std::max(peak_live_, live);
    most_in_use_ = std::max(most_in_use_, pages_in_use);
  }
  // So many pages may be reserved, of which so many are.
  [[nodiscard]] std::int64_t most(std::int64_t pages) const {
    constexpr std::int64_t kRoundedUp = 3;
    const std::int64_t within_peak = page_.whole(peak_live_ + peak_live_ / 500);
    const std::int64_t used = std::min(pages, page_.whole(page_.up(peak_live_)));
    const std::int64_t ahead = std::min<std::int64_t>(64, std::max(used / 512, std::min<std::int64_t>(4, used / 64)));
    return std::max(within_peak, most_in_use_) + ahead + kRoundedUp;
  }

 private:
  PageSize page_;
  Sectors peak_live_ = 0;
  std::int64_t most_in_use_ = 0;
};

}  // namespace cistern
