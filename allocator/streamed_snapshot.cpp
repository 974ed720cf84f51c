// The snapshot of all heaps for a dump when memory has run out: a copy while there is host memory for
// one, else written as it goes.

#include "allocator/device_heaps.h"
#include "stats/descriptor_output.h"
#include "stats/json_writer.h"
#include "stats/snapshot_members.h"
#include "stats/snapshot_schema.h"
#include "stats/tags.h"

#include <ostream>
#include <span>
#include <string_view>

namespace cistern {

SnapshotSource::Written DeviceHeaps::write_snapshot(int descriptor, int* error) noexcept {
  DescriptorOutput output(descriptor);
  std::ostream out(&output);
  Written written = Written::whole;
  try {
    const Snapshot copy = snapshot();
    write_json(copy, out);
  } catch (...) {  // before the first byte: the copy alone takes host memory
    written = Written::without_names;
    stream_snapshot(out);
  }
  *error = output.error();
  return *error != 0 ? Written::not_all : written;
}

// All locks are held, in the order of fork's: what is written is of one moment, and other threads wait
// for as long as it takes.
void DeviceHeaps::stream_snapshot(std::ostream& out) noexcept {
  JsonWriter json(out);
  lock_for_fork();
  json.begin_object();
  json.key("schema_version").number(kSnapshotSchemaVersion);
  stream_heaps(json);
  json.key("modules").begin_array().end_array();
  json.key("tags").begin_array();
  const TagRegistry& tags = tag_registry();
  for (std::size_t tag = 1; tag <= tags.size(); ++tag) json.string(tags.name(static_cast<TagId>(tag)));
  json.end_array().end_object().finish();
  unlock_after_fork();
}

void DeviceHeaps::stream_heaps(JsonWriter& json) {
  StackIndex first_stack = 0;
  json.key("segments").begin_array();
  for_each([&](const DeviceAllocator& heap) {
    heap.stream_segments(json, first_stack);
    first_stack += static_cast<StackIndex>(heap.history().stack_count());
  });
  json.end_array();
  bool has_overflowed = false;
  first_stack = 0;
  json.key("device_traces").begin_array();
  for (const auto& slot : heaps_) {
    json.begin_array();
    if (DeviceAllocator* heap = slot.load(std::memory_order_acquire)) {
      heap->stream_history(json, first_stack);
      first_stack += static_cast<StackIndex>(heap->history().stack_count());
      has_overflowed = has_overflowed || heap->history().has_overflowed();
    }
    json.end_array();
  }
  json.end_array();
  json.key("allocator_settings");
  settings_.trace_alloc_overflowed = has_overflowed;
  tell_policy_in_force(settings_, true);
  write_settings(json, settings_);
  json.key("external_annotations").begin_array();
  annotations_.for_each([&json](std::string_view name, bool is_start, int device, std::int64_t time_us) {
    write_annotation(json, name, is_start, device, time_us);
  });
  json.end_array();
  json.key("device_stats").begin_array();
  for (const auto& slot : heaps_) {
    const DeviceAllocator* heap = slot.load(std::memory_order_acquire);
    write_stats(json, heap == nullptr ? unused_stats_of(options_) : heap->stats_of_cut());
  }
  json.end_array();
  json.key("stacks").begin_array();
  for_each([&json](const DeviceAllocator& heap) { heap.stream_stacks(json); });
  json.end_array();
}

}  // namespace cistern
