// A snapshot as JSON, by the names of torch.cuda.memory._snapshot.

#include <cistern/snapshot.h>

#include "stats/gzip_output.h"
#include "stats/json_writer.h"
#include "stats/snapshot_members.h"
#include "stats/snapshot_schema.h"

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {
namespace {

std::string_view text_of(const Snapshot& snapshot, std::int32_t index) {
  const auto place = static_cast<std::size_t>(index);
  return index < 0 || place >= snapshot.texts.size() ? std::string_view() : snapshot.texts[place];
}

// One inner list a device: readers index them by a segment's device.
void write_device_traces(JsonWriter& json, const Snapshot& snapshot) {
  std::size_t devices = std::max(snapshot.device_stats.size(), snapshot.device_traces.size());
  for (const SegmentInfo& segment : snapshot.segments)
    devices = std::max(devices, static_cast<std::size_t>(std::max(segment.device, 0)) + 1);
  json.key("device_traces").begin_array();
  for (std::size_t device = 0; device < devices; ++device) {
    json.begin_array();
    if (device < snapshot.device_traces.size())
      for (const TraceEntry& entry : snapshot.device_traces[device])
        write_entry(json, entry, text_of(snapshot, entry.user_metadata));
    json.end_array();
  }
  json.end_array();
}

void write_stacks(JsonWriter& json, const std::vector<StackInfo>& stacks) {
  json.key("stacks").begin_array();
  for (const StackInfo& stack : stacks) {
    json.begin_array();
    for (const FrameInfo& frame : stack) write_frame(json, frame);
    json.end_array();
  }
  json.end_array();
}

}  // namespace

const char* to_string(BlockState state) noexcept {
  switch (state) {
    case BlockState::active_allocated:
      return "active_allocated";
    case BlockState::active_pending_free:
      return "active_pending_free";
    case BlockState::inactive:
      break;
  }
  return "inactive";
}

void write_json(const Snapshot& snapshot, std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  // PyTorch's viewer keeps `version` for itself.
  json.key("schema_version").number(kSnapshotSchemaVersion);
  json.key("segments").begin_array();
  for (const SegmentInfo& segment : snapshot.segments) {
    begin_segment(json, segment);
    for (const BlockInfo& block : segment.blocks) write_block(json, block);
    end_segment(json);
  }
  json.end_array();
  write_device_traces(json, snapshot);
  json.key("allocator_settings");
  write_settings(json, snapshot.settings);
  json.key("external_annotations").begin_array();
  for (const ExternalAnnotation& each : snapshot.external_annotations)
    write_annotation(json, each.name, each.is_start, each.device, each.time_us);
  json.end_array();
  json.key("device_stats").begin_array();
  for (const MemoryStats& stats : snapshot.device_stats) write_stats(json, stats);
  json.end_array();
  write_stacks(json, snapshot.stacks);
  json.key("modules").begin_array();
  for (const ModuleInfo& module : snapshot.modules)
    json.begin_object().key("path").string(module.path).key("build_id").string(module.build_id).end_object();
  json.end_array();
  json.key("tags").begin_array();
  for (const std::string& tag : snapshot.tags) json.string(tag);
  json.end_array();
  json.end_object().finish();
}

void write_json(const Snapshot& snapshot, const std::string& path) {
  write_plain_or_gzip(path, [&snapshot](std::ostream& out) { write_json(snapshot, out); });
}

}  // namespace cistern
