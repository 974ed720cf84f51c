#include "runtime/simulated/fault_plan.h"

namespace cistern::simulated {

void FaultPlan::fail_call(std::optional<DriverEntryId> entry, std::uint64_t k, CUresult error) {
  const std::lock_guard lock(mutex_);
  faults_.push_back({entry, k, error});
  armed_.store(true, std::memory_order_relaxed);
}

void FaultPlan::clear() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  armed_.store(false, std::memory_order_relaxed);
}

// Every fault counts every call it is meant for; of two that are due the older one shows.
CUresult FaultPlan::count_armed(DriverEntryId entry) {
  const std::lock_guard lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  for (auto fault = faults_.begin(); fault != faults_.end();) {
    const bool meant = !fault->entry || *fault->entry == entry;
    if (!meant || --fault->calls_left != 0) {
      ++fault;
      continue;
    }
    if (result == CUDA_SUCCESS) result = fault->error;
    fault = faults_.erase(fault);
  }
  armed_.store(!faults_.empty(), std::memory_order_relaxed);
  if (result != CUDA_SUCCESS) injected_.fetch_add(1, std::memory_order_relaxed);
  return result;
}

}  // namespace cistern::simulated
