// What a heap's budgets refuse, and whom they tell.

#include "allocator/budgets.h"

#include "allocator/climb.h"
#include "allocator/device_allocator.h"
#include "stats/out_of_memory_text.h"

namespace cistern {

void DeviceAllocator::add_budget(std::shared_ptr<const BudgetLimits> limits) {
  const Lock lock(mutex_);
  budgets_.add(std::move(limits));
}

void DeviceAllocator::remove_budget(const BudgetLimits* limits) noexcept {
  std::shared_ptr<const BudgetLimits> removed;  // what its callback owns ends without the lock
  const Lock lock(mutex_);
  removed = budgets_.remove(limits);
}

LiveBytes DeviceAllocator::live_bytes(TagId tag) const {
  return {static_cast<std::size_t>(recorder_.live_bytes(tag)), static_cast<std::size_t>(recorder_.live_bytes())};
}

// Throws if the block that was found, or where none was, that of a new segment, would pass a hard
// limit. The block goes back to its pool then.
void DeviceAllocator::require_within_budgets(const Request& request, Block* block, Lock& lock) {
  std::size_t bytes = request.rounded;
  if (block != nullptr) {
    if (!should_split(*block, request)) bytes = block->bytes;
  } else if (options_.policy != Policy::expandable) {  // which maps what the request needs
    const PrivatePool* home = request.pools->home;
    const bool is_kept_whole = home != nullptr && home->settings.no_split;
    if (is_kept_whole || !policy_.should_split(request.segment_bytes, request.rounded, request.kind))
      bytes = request.segment_bytes;
  }
  const BudgetLimits* limits = budgets_.refusing(request.tag, bytes, live_bytes(request.tag));
  if (limits == nullptr) return;
  if (block != nullptr) put_back(block);
  refuse_over_budget(*limits, request, bytes, lock);
}

// Of a user's own making: nothing is counted and nobody is told but the caller.
void DeviceAllocator::refuse_over_budget(const BudgetLimits& limits, const Request& request, std::size_t bytes,
                                         Lock& lock) {
  const BudgetRefusal refusal{limits.tag_name, limits.hard_bytes, Budgets::live_of(limits, live_bytes(request.tag)),
                              bytes};
  const PoolReference keeps(*request.pools, lock);
  OutOfMemoryReport report = make_report(request, memory_beside_heap(lock));
  lock.unlock();
  report.cause = OutOfMemoryCause::limit;
  report.segment_bytes = bytes;  // nobody asks the driver
  report.advice.clear();
  report.budget = refusal;
  throw OutOfMemoryError(report, format_out_of_memory(report));
}

// Calls those whose soft limit a block of this size has just passed, with the lock given up. Each
// number is asked for once: budgets may come and go meanwhile.
void DeviceAllocator::tell_budgets(TagId tag, std::size_t bytes, Lock& lock) noexcept {
  const LiveBytes live = live_bytes(tag);
  for (Budgets::Entry passed = budgets_.next_passed(0, tag, bytes, live); passed.limits != nullptr;) {
    const std::uint64_t number = passed.number;
    lock.unlock();
    try {
      passed.limits->on_soft(
          {passed.limits->tag_name, device_, passed.limits->soft_bytes, Budgets::live_of(*passed.limits, live), bytes});
    } catch (...) {  // the block was handed out: its caller must get it
    }
    passed.limits.reset();
    lock.lock();
    passed = budgets_.next_passed(number, tag, bytes, live);
  }
}

}  // namespace cistern
