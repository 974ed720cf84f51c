// A snapshot of all devices, and the settings that it tells.

#include "allocator/device_heaps.h"

#include "allocator/options_keys.h"
#include "stats/tags.h"

#include <cstdint>

namespace cistern {

Snapshot DeviceHeaps::snapshot() const {
  Snapshot snapshot;
  SnapshotStacks stacks;
  for (int device = 0; device < contexts_.device_count(); ++device) {
    if (DeviceAllocator* heap = existing(device)) {
      heap->add_to(snapshot, stacks);
    } else {
      snapshot.device_stats.push_back(stats(device));
      snapshot.device_traces.emplace_back();
    }
  }
  stacks.describe(snapshot);
  snapshot.external_annotations = annotations_.all();
  snapshot.tags = tag_registry().names();  // after the blocks: every one of theirs is there
  const bool has_overflowed = snapshot.settings.trace_alloc_overflowed;
  {
    const std::lock_guard lock(mutex_);
    snapshot.settings = settings_;
    tell_policy_in_force(snapshot.settings, false);
  }
  snapshot.settings.trace_alloc_overflowed = has_overflowed;
  return snapshot;
}

AllocatorSettings DeviceHeaps::settings_of(const AllocatorOptions& options) {
  AllocatorSettings settings;
  settings.text = options.text;
  settings.max_split_size = static_cast<std::int64_t>(options.max_split_size_bytes);
  settings.garbage_collection_threshold = options.garbage_collection_threshold;
  settings.graph_capture_record_stream_reuse = options.graph_capture_record_stream_reuse;
  settings.expandable_segments = options.policy == Policy::expandable;
  for (std::size_t i = 0; i < options.roundup_power2_divisions.size(); ++i)
    settings.roundup_power2_divisions[std::int64_t{1} << i] = options.roundup_power2_divisions[i];
  settings.policy = to_string(options.policy);
  settings.pytorch_rules = to_string(options.pytorch_rules);
  settings.max_non_split_rounding = static_cast<std::int64_t>(options.max_non_split_rounding_bytes);
  return settings;
}

// That of every heap which cannot do as the options ask is `classic`. Takes no memory. Requires: mutex_.
void DeviceHeaps::tell_policy_in_force(AllocatorSettings& settings, bool heaps_are_locked) const {
  bool has_heap = false;
  bool serves = false;
  for_each([&](const DeviceAllocator& heap) {
    has_heap = true;
    serves = serves || (heaps_are_locked ? heap.can_serve_while_locked(options_) : heap.can_serve(options_));
  });
  const Policy policy = has_heap && !serves ? Policy::classic : options_.policy;
  settings.policy = to_string(policy);
  settings.expandable_segments = policy == Policy::expandable;
}

}  // namespace cistern
