#pragma once

// DeviceCapacity: how much of one device's physical memory is in use, in whole granules.
//
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/granule.h"

#include <algorithm>
#include <cstddef>

namespace cistern::simulated {

class DeviceCapacity {
 public:
  explicit DeviceCapacity(std::size_t total_bytes) : total_(total_bytes) {}

  // Requires: `bytes` is a multiple of the granule. False, unchanged, if it does not fit.
  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    if (bytes > total_ - used_) return false;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return true;
  }
  void give_back(std::size_t bytes) noexcept { used_ -= bytes; }

  [[nodiscard]] std::size_t total() const noexcept { return total_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t peak() const noexcept { return peak_; }

 private:
  std::size_t total_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace cistern::simulated
