// A snapshot as JSON, by the names of torch.cuda.memory._snapshot.

#include <cistern/snapshot.h>

#include "stats/atomic_file.h"
#include "stats/json_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace cistern {
namespace {

// Frames are listed even where no stack was recorded: readers expect the key.
void write_no_frames(JsonWriter& json) { json.key("frames").begin_array().end_array(); }

void write_block(JsonWriter& json, const BlockInfo& block) {
  json.begin_object();
  json.key("address").number(block.address);
  json.key("size").number(block.size);
  json.key("requested_size").number(block.requested_size);
  json.key("state").string(to_string(block.state));
  write_no_frames(json);
  json.end_object();
}

void write_segment(JsonWriter& json, const SegmentInfo& segment) {
  json.begin_object();
  json.key("device").number(segment.device);
  json.key("address").number(segment.address);
  json.key("total_size").number(segment.total_size);
  json.key("allocated_size").number(segment.allocated_size);
  json.key("active_size").number(segment.active_size);
  json.key("requested_size").number(segment.requested_size);
  json.key("stream").number(segment.stream);
  json.key("segment_type").string(segment.is_large ? "large" : "small");
  json.key("segment_pool_id").begin_array();
  json.number(segment.segment_pool_id.first).number(segment.segment_pool_id.second).end_array();
  json.key("is_expandable").boolean(segment.is_expandable);
  write_no_frames(json);
  json.key("blocks").begin_array();
  for (const BlockInfo& block : segment.blocks) write_block(json, block);
  json.end_array().end_object();
}

// One inner list a device: readers index them by a segment's device.
void write_device_traces(JsonWriter& json, const Snapshot& snapshot) {
  std::size_t devices = snapshot.device_stats.size();
  for (const SegmentInfo& segment : snapshot.segments)
    devices = std::max(devices, static_cast<std::size_t>(std::max(segment.device, 0)) + 1);
  json.key("device_traces").begin_array();
  for (std::size_t device = 0; device < devices; ++device) json.begin_array().end_array();
  json.end_array();
}

// All sixteen buckets, from 1 MiB to 32 GiB, whether they were set or not.
void write_divisions(JsonWriter& json, std::map<std::int64_t, std::int64_t> divisions) {
  for (int bucket = 0; bucket < 16; ++bucket) divisions.emplace(std::int64_t{1} << bucket, 0);
  json.begin_object();
  for (const auto& [mebibytes, count] : divisions) json.key(std::to_string(mebibytes)).number(count);
  json.end_object();
}

void write_settings(JsonWriter& json, const AllocatorSettings& settings) {
  json.key("allocator_settings").begin_object();
  json.key("PYTORCH_CUDA_ALLOC_CONF").string(settings.text);
  json.key("max_split_size").number(settings.max_split_size);
  json.key("garbage_collection_threshold").number(settings.garbage_collection_threshold);
  json.key("expandable_segments").boolean(settings.expandable_segments);
  json.key("pinned_num_register_threads").number(settings.pinned_num_register_threads);
  json.key("release_lock_on_cudamalloc").boolean(settings.release_lock_on_cudamalloc);
  json.key("pinned_use_cuda_host_register").boolean(settings.pinned_use_cuda_host_register);
  json.key("graph_capture_record_stream_reuse").boolean(settings.graph_capture_record_stream_reuse);
  json.key("roundup_power2_divisions");
  write_divisions(json, settings.roundup_power2_divisions);
  json.end_object();
}

void write_device_stats(JsonWriter& json, const std::vector<MemoryStats>& devices) {
  json.key("device_stats").begin_array();
  for (const MemoryStats& stats : devices) {
    json.begin_object();
    for (const auto& [key, value] : stats.flat()) json.key(key).number(value);
    json.end_object();
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

const char* to_string(TraceAction action) noexcept {
  switch (action) {
    case TraceAction::alloc:
      return "alloc";
    case TraceAction::free_requested:
      return "free_requested";
    case TraceAction::free_completed:
      return "free_completed";
    case TraceAction::segment_alloc:
      return "segment_alloc";
    case TraceAction::segment_free:
      return "segment_free";
    case TraceAction::segment_map:
      return "segment_map";
    case TraceAction::segment_unmap:
      return "segment_unmap";
    case TraceAction::snapshot:
      return "snapshot";
    case TraceAction::oom:
      return "oom";
    case TraceAction::annotate:
      break;
  }
  return "annotate";
}

void write_json(const Snapshot& snapshot, std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  json.key("segments").begin_array();
  for (const SegmentInfo& segment : snapshot.segments) write_segment(json, segment);
  json.end_array();
  write_device_traces(json, snapshot);
  write_settings(json, snapshot.settings);
  json.key("external_annotations").begin_array().end_array();
  write_device_stats(json, snapshot.device_stats);
  json.end_object().finish();
}

void write_json(const Snapshot& snapshot, const std::string& path) {
  write_file(path, [&snapshot](std::ostream& out) { write_json(snapshot, out); });
}

}  // namespace cistern
