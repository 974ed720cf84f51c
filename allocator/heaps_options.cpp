// The options of all devices, which change together or not at all.

#include "allocator/device_heaps.h"

#include "allocator/options_keys.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {
namespace {

constexpr const char* kFixedSegments = "the device or its driver has no virtual memory management";

}  // namespace

HostSourceOptions DeviceHeaps::host_source_of(const AllocatorOptions& options) {
  return {options.pinned_use_cuda_host_register, options.pinned_num_register_threads};
}

// As PyTorch's, a used heap may turn expandable segments on and off: memory of both kinds stays what
// it is. All that may fail comes first, for all devices.
void DeviceHeaps::set_options(std::string_view text) {
  const std::lock_guard lock(mutex_);
  AllocatorOptions base = options_;
  base.history = history_options_;
  AllocatorOptions options = AllocatorOptions::parse(text, base);
  bool in_use = false;
  for_each([&](const DeviceAllocator& heap) { in_use = in_use || heap.is_used(); });
  const auto caches_segments = [](Policy policy) { return policy == Policy::classic || policy == Policy::expandable; };
  if (in_use && options.policy != options_.policy &&
      !(caches_segments(options.policy) && caches_segments(options_.policy)))
    throw NotSupported(fmt::format("policy {}: the policy is fixed by the first allocation, and is {}",
                                   to_string(options.policy), to_string(options_.policy)));
  for_each([&](DeviceAllocator& heap) { heap.prepare(options); });
  AllocatorSettings settings = settings_of(options);
  std::vector<HistoryChange> history_changes;
  HistoryOptions history = options.history;
  if (options.history_given) history_changes = prepare_history(history);
  std::vector<std::pair<DeviceAllocator*, AllocatorOptions>> changes;
  for_each([&](DeviceAllocator& heap) { changes.emplace_back(&heap, options); });
  for (auto& [heap, of_heap] : changes) heap->set_options(std::move(of_heap));
  for_each([&](DeviceAllocator& heap) {
    if (!heap.can_serve(options)) warn_of_fixed_segments(options.policy, heap.device());
  });
  host_.set_source(host_source_of(options));
  settings.trace_alloc_max_entries = settings_.trace_alloc_max_entries;
  settings_ = std::move(settings);
  // Heaps that are made later take the fraction that any text has named.
  options.fraction_given = options.fraction_given || options_.fraction_given;
  if (options.history_given) apply(history_changes, std::move(history));
  options_ = std::move(options);
}

// Once, whichever device it is: the rest is in describe_options. Nobody need have asked for pages, and so nobody is
// told. Requires: mutex_.
void DeviceHeaps::warn_of_fixed_segments(Policy policy, int device) {
  if (policy == Policy::paged || std::exchange(warned_of_fixed_segments_, true)) return;
  std::fprintf(stderr, "cistern: expandable_segments:True: %s; device %d is served as by False\n", kFixedSegments,
               device);
}

std::string DeviceHeaps::describe_options() const {
  AllocatorOptions options = this->options();
  options.history = history_options();
  std::string text = options.describe();
  for_each([&](const DeviceAllocator& heap) {
    if (!heap.can_serve(options))
      text += fmt::format("without effect: {} on device {}: {}\n",
                          options.policy == Policy::paged ? "policy:paged" : "expandable_segments", heap.device(),
                          kFixedSegments);
    if (const std::uint64_t count = heap.requests_without_addresses(); count != 0)
      text += fmt::format(
          "without effect: policy:paged on device {}: for {} requests, which had segments as under policy:classic: the "
          "driver had no addresses left\n",
          heap.device(), count);
    const double fraction = heap.memory_fraction();
    if (fraction < 1.0) text += fmt::format("memory fraction of device {}: {:.6g}\n", heap.device(), fraction);
  });
  return text;
}

AllocatorOptions DeviceHeaps::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

}  // namespace cistern
