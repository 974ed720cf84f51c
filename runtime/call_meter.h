#pragma once

// Counts driver calls by entry, and accounts what they would cost.
//
// The simulated driver counts its own calls with one; metered() wraps any other table,
// so that a replay on a real device reports the same figures.
// Thread safety: any member may be called from any thread; counts are relaxed atomics.

#include "runtime/driver_api.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace cistern {

// The entry of a driver name such as "cuMemAlloc".
[[nodiscard]] std::optional<DriverEntryId> find_driver_entry(std::string_view name) noexcept;

class CallMeter {
 public:
  // Starts with the costs of bench/costs.json, as it was when this was built.
  CallMeter();

  // The first thread counts by itself, without a locked instruction: most programs have no other that calls.
  void count(DriverEntryId entry) noexcept {
    if (!is_first_thread()) {
      counts_[index(entry)].fetch_add(1, std::memory_order_relaxed);
      return;
    }
    std::atomic<std::uint64_t>& own = first_counts_[index(entry)];
    own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t calls(DriverEntryId entry) const noexcept { return calls_at(index(entry)); }
  [[nodiscard]] std::uint64_t calls() const noexcept;
  // Calls that made the host wait for the device, as their caller saw them.
  void count_host_synchronization() noexcept { host_synchronizations_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t host_synchronizations() const noexcept {
    return host_synchronizations_.load(std::memory_order_relaxed);
  }
  void set_cost(DriverEntryId entry, std::chrono::nanoseconds cost) noexcept;
  // The sum of calls times cost.
  [[nodiscard]] std::chrono::nanoseconds modelled_cost() const noexcept;

 private:
  using Counts = std::array<std::atomic<std::uint64_t>, kDriverEntryCount>;
  static std::size_t index(DriverEntryId entry) noexcept { return static_cast<std::size_t>(entry); }
  [[nodiscard]] std::uint64_t calls_at(std::size_t entry) const noexcept {
    return first_counts_[entry].load(std::memory_order_relaxed) + counts_[entry].load(std::memory_order_relaxed);
  }
  // The one that counted first. Threads are told apart by where their own data lies: a later one may come to lie there.
  [[nodiscard]] bool is_first_thread() noexcept {
    const char* first = first_thread_.load(std::memory_order_relaxed);
    if (first == nullptr && first_thread_.compare_exchange_strong(first, &this_thread, std::memory_order_relaxed))
      return true;
    return first == &this_thread;
  }

  [[gnu::tls_model("initial-exec")]] static constinit thread_local char this_thread;
  std::atomic<const char*> first_thread_{nullptr};
  Counts first_counts_{};
  Counts counts_{};  // by the others
  std::array<std::atomic<std::int64_t>, kDriverEntryCount> costs_ns_{};
  std::atomic<std::uint64_t> host_synchronizations_{0};
};

// A table that counts each call in `meter` and passes it on to `inner`. Both must outlive it.
class MeteredDriver {
 public:
  MeteredDriver(const DriverApi& inner, CallMeter& meter);
  ~MeteredDriver();
  MeteredDriver(const MeteredDriver&) = delete;
  MeteredDriver& operator=(const MeteredDriver&) = delete;
  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }

 private:
  struct Entries;
  std::unique_ptr<Entries> entries_;
  DriverApi api_;
};

}  // namespace cistern
