// The options of a heap that is in use: what they need of the driver, and what follows from them.

#include "allocator/device_allocator.h"

#include <fmt/format.h>

#include <utility>

namespace cistern {

void DeviceAllocator::prepare(const AllocatorOptions& options) {
  if (options.policy == Policy::async) prepare_driver_pool();
  if (!needs_pages(options)) return;
  const bool is_paged = options.policy == Policy::paged;
  {
    const Lock lock(mutex_);
    if (pages_ != nullptr && (!is_paged || paged_ != nullptr)) return;
  }
  auto pages = PageSource::make(api_, surroundings_.contexts.driver_device(device_));
  {
    const Lock lock(mutex_);
    if (pages_ == nullptr) pages_ = std::move(pages);
  }
  if (!is_paged || pages_ == nullptr) return;
  auto paged = std::make_unique<PagedMemory>(api_, *pages_, device_total_bytes_);
  const Lock lock(mutex_);
  if (paged_ == nullptr) paged_ = std::move(paged);
}

// Requires: valid options, which prepare has seen. Takes no host memory: all devices change or none.
void DeviceAllocator::set_options(AllocatorOptions&& options) noexcept {
  const Lock lock(mutex_);
  options = served(std::move(options));
  std::swap(options_, options);  // the old ones end without the lock
  policy_ = SizePolicy(options_);
  choose_search();
  caches_ = caches(options_.policy);
  if (paged_ != nullptr) paged_->decay.begin_anew();
  if (paged_ != nullptr && options_.stream_hand_over != StreamHandOver::fair) paged_->parting.come_together();
  if (options_.fraction_given) apply_fraction(options_.per_process_memory_fraction);
}

void DeviceAllocator::set_memory_fraction(double fraction) {
  const Lock lock(mutex_);
  apply_fraction(fraction);
}

void DeviceAllocator::apply_fraction(double fraction) {
  if (!(fraction >= 0.0 && fraction <= 1.0))
    throw InvalidArgument(fmt::format("memory fraction {}: expected a number from 0 to 1", fraction));
  fraction_ = fraction;
  // From 2.5 on PyTorch takes 1.0 as "no limit"; 2.4 limits to the device's total.
  const bool limited = fraction < 1.0 || options_.pytorch_rules == PytorchRules::v2_4;
  limit_bytes_ = limited ? static_cast<std::size_t>(fraction * static_cast<double>(device_total_bytes_)) : kUnlimited;
}

}  // namespace cistern
