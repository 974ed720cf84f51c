// A snapshot as JSON, by the names of torch.cuda.memory._snapshot.

#include <cistern/snapshot.h>

#include "stats/gzip_output.h"
#include "stats/json_writer.h"
#include "stats/snapshot_schema.h"

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cistern {
namespace {

// Readers of PyTorch's form expect the list of frames, which stand in the table of stacks.
void write_stack(JsonWriter& json, StackIndex stack) {
  json.key("frames").begin_array().end_array();
  if (stack != kNoStack) json.key("stack").number(stack);
}

void write_block(JsonWriter& json, const BlockInfo& block) {
  json.begin_object();
  json.key("address").number(block.address);
  json.key("size").number(block.size);
  json.key("requested_size").number(block.requested_size);
  json.key("state").string(to_string(block.state));
  write_stack(json, block.stack);
  if (block.tag != kNoTag) json.key("tag").number(block.tag);
  json.end_object();
}

void write_pair(JsonWriter& json, std::pair<std::int64_t, std::int64_t> pair) {
  json.begin_array().number(pair.first).number(pair.second).end_array();
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
  json.key("segment_pool_id");
  write_pair(json, segment.segment_pool_id);
  json.key("is_expandable").boolean(segment.is_expandable);
  write_stack(json, segment.stack);
  json.key("blocks").begin_array();
  for (const BlockInfo& block : segment.blocks) write_block(json, block);
  json.end_array().end_object();
}

// Text of one entry, put together without a writer: there may be millions.
class EntryText {
 public:
  explicit EntryText(const std::vector<std::string>& texts) : texts_(texts) {}

  void write(JsonWriter& json, const TraceEntry& entry) {
    end_ = text_.data();
    put("{\"action\": \"").put(to_string(entry.action));
    put(entry.action == TraceAction::oom ? "\", \"device_free\": " : "\", \"addr\": ").put(entry.address);
    put(", \"size\": ").put(entry.size);
    put(", \"stream\": ").put(entry.stream);
    put(", \"time_us\": ").put(entry.time_us);
    put(", \"pool_id\": [").put(entry.pool_id.first).put(", ").put(entry.pool_id.second);
    put("], \"compile_context\": \"N/A\"");
    if (entry.stack != kNoStack) put(", \"stack\": ").put(entry.stack);
    if (entry.tag != kNoTag) put(", \"tag\": ").put(entry.tag);
    put(", \"user_metadata\": ").put(quoted(entry.user_metadata)).put("}");
    json.verbatim_object({text_.data(), static_cast<std::size_t>(end_ - text_.data())});
  }

 private:
  EntryText& put(std::string_view text) {
    reserve(text.size());
    end_ = std::copy(text.begin(), text.end(), end_);
    return *this;
  }
  template <std::integral Number>
  EntryText& put(Number number) {
    constexpr std::size_t most = 24;
    reserve(most);
    end_ = std::to_chars(end_, end_ + most, number).ptr;
    return *this;
  }
  void reserve(std::size_t bytes) {
    const auto used = static_cast<std::size_t>(end_ - text_.data());
    if (used + bytes <= text_.size()) return;
    text_.resize(2 * (used + bytes));
    end_ = text_.data() + used;
  }
  // The text as JSON, made once: most entries carry the same one.
  std::string_view quoted(std::int32_t index) {
    if (index < 0 || static_cast<std::size_t>(index) >= texts_.size()) return "\"\"";
    if (index != quoted_index_) {
      std::ostringstream out;
      JsonWriter writer(out);
      writer.string(texts_[static_cast<std::size_t>(index)]).finish();
      quoted_ = std::move(out).str();
      quoted_.pop_back();  // the line's end
      quoted_index_ = index;
    }
    return quoted_;
  }

  const std::vector<std::string>& texts_;
  std::vector<char> text_ = std::vector<char>(512);
  char* end_ = nullptr;
  std::string quoted_;
  std::int32_t quoted_index_ = -1;
};

// One inner list a device: readers index them by a segment's device.
void write_device_traces(JsonWriter& json, const Snapshot& snapshot) {
  std::size_t devices = std::max(snapshot.device_stats.size(), snapshot.device_traces.size());
  for (const SegmentInfo& segment : snapshot.segments)
    devices = std::max(devices, static_cast<std::size_t>(std::max(segment.device, 0)) + 1);
  json.key("device_traces").begin_array();
  EntryText text(snapshot.texts);
  for (std::size_t device = 0; device < devices; ++device) {
    json.begin_array();
    if (device < snapshot.device_traces.size())
      for (const TraceEntry& entry : snapshot.device_traces[device]) text.write(json, entry);
    json.end_array();
  }
  json.end_array();
}

void write_annotations(JsonWriter& json, const std::vector<ExternalAnnotation>& annotations) {
  json.key("external_annotations").begin_array();
  for (const ExternalAnnotation& annotation : annotations) {
    json.begin_object();
    json.key("name").string(annotation.name);
    json.key("stage").string(annotation.is_start ? "START" : "END");
    json.key("device").number(annotation.device);
    json.key("time_us").number(annotation.time_us);
    json.end_object();
  }
  json.end_array();
}

void write_stacks(JsonWriter& json, const std::vector<StackInfo>& stacks) {
  json.key("stacks").begin_array();
  for (const StackInfo& stack : stacks) {
    json.begin_array();
    for (const FrameInfo& frame : stack) {
      json.begin_object();
      json.key("name").string(frame.name);
      json.key("filename").string(frame.filename);
      json.key("line").number(frame.line);
      json.key("address").number(frame.address);
      if (frame.module >= 0) json.key("module").number(frame.module).key("offset").number(frame.offset);
      json.end_object();
    }
    json.end_array();
  }
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
  json.key("trace_alloc_overflowed").boolean(settings.trace_alloc_overflowed);
  json.key("trace_alloc_max_entries").number(settings.trace_alloc_max_entries);
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

void write_json(const Snapshot& snapshot, std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  // PyTorch's viewer keeps `version` for itself.
  json.key("schema_version").number(kSnapshotSchemaVersion);
  json.key("segments").begin_array();
  for (const SegmentInfo& segment : snapshot.segments) write_segment(json, segment);
  json.end_array();
  write_device_traces(json, snapshot);
  write_settings(json, snapshot.settings);
  write_annotations(json, snapshot.external_annotations);
  write_device_stats(json, snapshot.device_stats);
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
