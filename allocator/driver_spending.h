#pragma once

// What placement has spent on the driver, by costs assumed for its calls, and what it may still spend.
//
// The measure is mapping all pages once, each as a handle of its own. The costs are constants, not measured on the
// device: two processes that ask for the same get the same places.
// Complexity: O(1). Thread safety: values.

#include <cstdint>

namespace cistern {

class DriverSpending {
 public:
  void created(std::int64_t handles) { microseconds_ += kCreate * handles; }
  void mapped(std::int64_t handles) { microseconds_ += kMap * handles; }
  void allowed() { microseconds_ += kAllow; }
  // What was spent on pages that are gone says nothing of those that will come.
  void gone(std::int64_t pages) { microseconds_ = microseconds_ > kPage * pages ? microseconds_ - kPage * pages : 0; }
  [[nodiscard]] std::int64_t microseconds() const { return microseconds_; }

  // Whether a window of so many handles, which a request could do without, stays within 1.9 times the measure.
  [[nodiscard]] bool affords_window(std::int64_t handles, std::int64_t pages) const {
    return 10 * (microseconds_ + kAllow + kMap * handles) <= 19 * kPage * pages;
  }
  // The least pages of a new handle: one, until the calls cost 1.5 and 2 times the measure.
  [[nodiscard]] std::int32_t least_handle(std::int64_t pages) const {
    constexpr std::int64_t kFewPages = 64;
    if (pages < kFewPages) return 1;
    if (1000 * microseconds_ > 2025 * kPage * pages) return 4;
    return 2 * microseconds_ > 3 * kPage * pages ? 2 : 1;
  }

 private:
  // Microseconds of cuMemCreate, cuMemMap and cuMemSetAccess.
  static constexpr std::int64_t kCreate = 40;
  static constexpr std::int64_t kMap = 3;
  static constexpr std::int64_t kAllow = 50;
  static constexpr std::int64_t kPage = kCreate + kMap;

  std::int64_t microseconds_ = 0;
};

}  // namespace cistern
