#include "runtime/simulated/fault_plan.h"

namespace cistern::simulated {
namespace {

bool is_meant(const FaultPlan::Entries& entries, DriverEntryId entry) { return !entries || *entries == entry; }

// SplitMix64: the same numbers on every platform, which the standard library's distributions do
// not promise. A number from 0 to below 1.
double next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return static_cast<double>(mixed >> 11) * 0x1.0p-53;
}

}  // namespace

void FaultPlan::arm() { armed_.store(!counted_.empty() || !random_.empty(), std::memory_order_relaxed); }

void FaultPlan::fail_call(Entries entries, std::uint64_t k, Fault fault) {
  const std::lock_guard lock(mutex_);
  counted_.push_back({entries, k, fault});
  arm();
}

void FaultPlan::fail_at_random(Entries entries, double probability, std::uint64_t seed, Fault fault) {
  const std::lock_guard lock(mutex_);
  random_.push_back({entries, probability, seed, fault});
  arm();
}

void FaultPlan::refuse_requests_from(std::size_t bytes) { refused_bytes_.store(bytes, std::memory_order_relaxed); }

void FaultPlan::clear() {
  const std::lock_guard lock(mutex_);
  counted_.clear();
  random_.clear();
  refused_bytes_.store(kRefusesNone, std::memory_order_relaxed);
  arm();
}

// Every fault counts every call it is meant for; of two that are due the older one shows, and
// one that was counted before one that was drawn.
Fault FaultPlan::count_armed(DriverEntryId entry) {
  const std::lock_guard lock(mutex_);
  Fault result;
  const auto show = [&](const Fault& fault) {
    if (result.error == CUDA_SUCCESS) result = fault;
  };
  for (auto counted = counted_.begin(); counted != counted_.end();) {
    if (!is_meant(counted->entries, entry) || --counted->calls_left != 0) {
      ++counted;
      continue;
    }
    show(counted->fault);
    counted = counted_.erase(counted);
  }
  for (Random& random : random_) {
    if (is_meant(random.entries, entry) && next_random(random.state) < random.probability) show(random.fault);
  }
  arm();
  if (result.error != CUDA_SUCCESS) injected_.fetch_add(1, std::memory_order_relaxed);
  return result;
}

}  // namespace cistern::simulated
