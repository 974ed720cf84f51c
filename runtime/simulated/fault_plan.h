#pragma once

// FaultPlan: which driver calls are to fail, and with what.
//
// Thread safety: any member may be called from any thread.

#include "runtime/driver_api.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace cistern::simulated {

class FaultPlan {
 public:
  // The k-th call from now of `entry`, or of any entry, fails. Requires: k > 0.
  void fail_call(std::optional<DriverEntryId> entry, std::uint64_t k, CUresult error);
  void clear();
  // Counts one call of `entry`: what it is to fail with, or CUDA_SUCCESS.
  [[nodiscard]] CUresult count(DriverEntryId entry) {
    return armed_.load(std::memory_order_relaxed) ? count_armed(entry) : CUDA_SUCCESS;
  }
  [[nodiscard]] std::uint64_t injected() const noexcept { return injected_.load(std::memory_order_relaxed); }

 private:
  struct Fault {
    std::optional<DriverEntryId> entry;
    std::uint64_t calls_left;
    CUresult error;
  };
  CUresult count_armed(DriverEntryId entry);

  std::mutex mutex_;
  std::vector<Fault> faults_;
  std::atomic<bool> armed_{false};  // whether there are any, so that most calls take no lock
  std::atomic<std::uint64_t> injected_{0};
};

}  // namespace cistern::simulated
