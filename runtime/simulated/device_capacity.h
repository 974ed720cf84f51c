#pragma once

// DeviceCapacity: how much of one device's physical memory is in use, in whole granules.
//
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/simulated/granule.h"
#include "runtime/simulated/shared_devices.h"

#include <algorithm>
#include <cstddef>

namespace cistern::simulated {

class DeviceCapacity {
 public:
  explicit DeviceCapacity(std::size_t total_bytes) : total_(total_bytes) {}

  // Requires: `bytes` is a multiple of the granule. False, unchanged, if it does not fit.
  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    if (bytes > total_ - used_ || (shared_ != nullptr && !shared_->take(device_, bytes))) return false;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return true;
  }
  void give_back(std::size_t bytes) noexcept {
    used_ -= bytes;
    if (shared_ != nullptr) shared_->give_back(device_, bytes);
  }
  // From now on what other processes hold counts too. `device`: see SharedDevices.
  void share(SharedDevices& shared, int device) noexcept {
    shared_ = &shared;
    device_ = device;
  }

  [[nodiscard]] std::size_t total() const noexcept { return total_; }
  [[nodiscard]] std::size_t free() const noexcept {
    const std::size_t used_by_all = shared_ == nullptr ? used_ : shared_->used(device_);
    return total_ - std::min(total_, used_by_all);
  }
  // By this process.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t peak() const noexcept { return peak_; }

 private:
  std::size_t total_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
  SharedDevices* shared_ = nullptr;  // null: the device is this process's alone
  int device_ = 0;
};

}  // namespace cistern::simulated
