#pragma once

// FaultPlan: which driver calls are to fail, and with what.
//
// Thread safety: any member may be called from any thread.

#include "runtime/driver_api.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

namespace cistern::simulated {

// What a call is to fail with, and whether its context keeps the error.
struct Fault {
  CUresult error = CUDA_SUCCESS;  // CUDA_SUCCESS: the call goes on
  bool is_sticky = false;
};

class FaultPlan {
 public:
  // An entry, or all of them.
  using Entries = std::optional<DriverEntryId>;

  // The k-th call from now fails. Requires: k > 0.
  void fail_call(Entries entries, std::uint64_t k, Fault fault);
  // Each call from now fails with a probability from 0 to 1, drawn from a sequence of its own:
  // the same seed fails the same calls.
  void fail_at_random(Entries entries, double probability, std::uint64_t seed, Fault fault);
  // Requests for at least as many bytes of device memory fail as out of memory.
  void refuse_requests_from(std::size_t bytes);
  void clear();

  // Counts one call of `entry`.
  [[nodiscard]] Fault count(DriverEntryId entry) {
    return armed_.load(std::memory_order_relaxed) ? count_armed(entry) : Fault();
  }
  // Whether a request for so many bytes is refused; counts it if so.
  [[nodiscard]] bool refuses_request(std::size_t bytes) noexcept {
    if (bytes < refused_bytes_.load(std::memory_order_relaxed)) return false;
    injected_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] std::uint64_t injected() const noexcept { return injected_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kRefusesNone = std::numeric_limits<std::size_t>::max();
  struct Counted {
    Entries entries;
    std::uint64_t calls_left;
    Fault fault;
  };
  struct Random {
    Entries entries;
    double probability;
    std::uint64_t state;
    Fault fault;
  };
  Fault count_armed(DriverEntryId entry);
  void arm();

  std::mutex mutex_;
  std::vector<Counted> counted_;
  std::vector<Random> random_;
  std::atomic<bool> armed_{false};  // whether there are any, so that most calls take no lock
  std::atomic<std::size_t> refused_bytes_{kRefusesNone};
  std::atomic<std::uint64_t> injected_{0};
};

}  // namespace cistern::simulated
