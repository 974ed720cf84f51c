// Budget: the public face of a heap's budgets.

#include <cistern/error.h>
#include <cistern/scope.h>

#include "allocator/budgets.h"
#include "allocator/caching_allocator_state.h"
#include "allocator/process_heap.h"

#include <fmt/format.h>

namespace cistern {
namespace {

std::shared_ptr<const BudgetLimits> limits_of(const BudgetOptions& options) {
  const bool has_soft = options.soft_bytes != kUnlimited;
  if (!has_soft && options.hard_bytes == kUnlimited)
    throw InvalidArgument("a budget without a limit: expected soft_bytes, hard_bytes or both");
  if (has_soft != static_cast<bool>(options.on_soft))
    throw InvalidArgument(has_soft ? "a budget with soft_bytes, but without on_soft: expected both or neither"
                                   : "a budget with on_soft, but without soft_bytes: expected both or neither");
  if (has_soft && options.hard_bytes < options.soft_bytes)
    throw InvalidArgument(fmt::format("a budget of {} bytes, soft limit {}: expected a hard limit of at least that",
                                      options.hard_bytes, options.soft_bytes));
  BudgetLimits limits{kUntagged, options.tag, options.soft_bytes, options.hard_bytes, options.on_soft};
  if (!options.tag.empty()) limits.tag = Tag(options.tag).id();
  return std::make_shared<const BudgetLimits>(std::move(limits));
}

}  // namespace

struct Budget::State {
  State(DeviceHeaps& heaps, int its_device, const BudgetOptions& options)
      : link(heaps.link()), device(its_device), limits(limits_of(options)) {
    heaps.heap(device).add_budget(limits);
  }
  ~State() {
    if (DeviceHeaps* heaps = link->heaps)
      if (DeviceAllocator* heap = heaps->existing(device)) heap->remove_budget(limits.get());
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<DeviceHeaps::Link> link;
  const int device;
  const std::shared_ptr<const BudgetLimits> limits;
};

Budget::Budget(const BudgetOptions& options)
    : state_(std::make_unique<State>(process_heaps(), resolve_device(options.device), options)) {}

Budget::Budget(CachingAllocator& allocator, const BudgetOptions& options) {
  DeviceHeaps& heaps = CachingAllocatorAccess::heaps(allocator);
  const int device = options.device.is_current() ? heaps.current_device() : options.device.index();
  state_ = std::make_unique<State>(heaps, device, options);
}

Budget::~Budget() = default;
Budget::Budget(Budget&&) noexcept = default;
Budget& Budget::operator=(Budget&&) noexcept = default;

}  // namespace cistern
