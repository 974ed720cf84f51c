// A snapshot as PyTorch writes it, stacks in place of their indices: as pickle and as JSON.

#include <cistern/error.h>
#include <cistern/snapshot.h>

#include "stats/gzip_output.h"
#include "stats/json_writer.h"
#include "stats/pickle_memo.h"
#include "stats/pickle_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {
namespace {

// The element that `index` names; nullptr for -1. A snapshot that a caller changed may name none.
template <class Element>
const Element* named(const std::vector<Element>& table, std::int32_t index, std::string_view what) {
  if (index == -1) return nullptr;
  if (static_cast<std::size_t>(index) >= table.size())
    throw InvalidArgument(
        fmt::format("snapshot: {} {}: expected an index below {}, or -1 for none", what, index, table.size()));
  return &table[static_cast<std::size_t>(index)];
}

// Lists of frames: in full each time, since JSON has no other way, or by what a pickle keeps.
class InlineFrames {
 public:
  explicit InlineFrames(JsonWriter& /*writer*/) {}
  template <class Write>
  void write(std::size_t /*stack*/, Write&& write) {
    std::forward<Write>(write)();
  }
};

template <class Writer, class Frames>
class TorchSnapshotWriter {
 public:
  TorchSnapshotWriter(const Snapshot& snapshot, Writer& writer)
      : snapshot_(snapshot), writer_(writer), frames_(writer) {}

  void write() {
    writer_.begin_object();
    list("segments", snapshot_.segments, [this](const SegmentInfo& info) { segment(info); });
    device_traces();
    settings();
    list("external_annotations", snapshot_.external_annotations,
         [this](const ExternalAnnotation& info) { annotation(info); });
    list("device_stats", snapshot_.device_stats, [this](const MemoryStats& info) { stats(info); });
    list("modules", snapshot_.modules, [this](const ModuleInfo& info) { module(info); });
    list("tags", snapshot_.tags, [this](const std::string& name) { writer_.string(name); });
    writer_.end_object();
    writer_.finish();
  }

 private:
  template <class Elements, class Write>
  void list(std::string_view name, const Elements& elements, Write&& write) {
    writer_.key(name).begin_array();
    for (const auto& element : elements) write(element);
    writer_.end_array();
  }

  template <class Number>
  void number(std::string_view name, Number value) {
    writer_.key(name).number(value);
  }

  // A reader in JavaScript or Python takes no address above the signed numbers.
  void address(std::string_view name, std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      throw InvalidArgument(fmt::format("snapshot: {} {}: expected an address below 2^63", name, value));
    writer_.key(name).number(value);
  }

  void pair(std::string_view name, std::pair<std::int64_t, std::int64_t> value) {
    writer_.key(name).begin_array();
    writer_.number(value.first).number(value.second).end_array();
  }

  void frames(const StackInfo& stack) {
    writer_.begin_array();
    for (const FrameInfo& frame : stack) {
      writer_.begin_object();
      writer_.key("name").string(frame.name);
      writer_.key("filename").string(frame.filename);
      writer_.key("line").number(frame.line);
      place_in_module(frame);
      writer_.end_object();
    }
    writer_.end_array();
  }

  // What other symbolizers need, where it is known.
  void place_in_module(const FrameInfo& frame) {
    if (frame.address != 0) address("address", frame.address);
    if (named(snapshot_.modules, frame.module, "module") == nullptr) return;
    number("module", frame.module);
    address("offset", frame.offset);
  }

  // Segments and blocks list their frames even where there are none.
  void frames_or_none(StackIndex index) {
    if (index == kNoStack) {
      writer_.key("frames").begin_array();
      writer_.end_array();
    } else {
      recorded_frames(index);
    }
  }

  void recorded_frames(StackIndex index) {
    const StackInfo* stack = named(snapshot_.stacks, index, "stack");
    if (stack == nullptr) return;
    writer_.key("frames");
    frames_.write(static_cast<std::size_t>(index), [&] { frames(*stack); });
  }

  void tag(TagIndex index) {
    if (named(snapshot_.tags, index, "tag") != nullptr) number("tag", index);
  }

  void block(const BlockInfo& info) {
    writer_.begin_object();
    address("address", info.address);
    number("size", info.size);
    number("requested_size", info.requested_size);
    writer_.key("state").string(to_string(info.state));
    tag(info.tag);
    frames_or_none(info.stack);
    writer_.end_object();
  }

  void segment(const SegmentInfo& info) {
    writer_.begin_object();
    number("device", info.device);
    address("address", info.address);
    number("total_size", info.total_size);
    number("allocated_size", info.allocated_size);
    number("active_size", info.active_size);
    number("requested_size", info.requested_size);
    number("stream", info.stream);
    writer_.key("segment_type").string(info.is_large ? "large" : "small");
    pair("segment_pool_id", info.segment_pool_id);
    writer_.key("is_expandable").boolean(info.is_expandable);
    if (info.range_size != 0) {
      address("range_address", info.range_address);
      number("range_size", info.range_size);
    }
    frames_or_none(info.stack);
    list("blocks", info.blocks, [this](const BlockInfo& each) { block(each); });
    writer_.end_object();
  }

  void trace_entry(const TraceEntry& entry) {
    writer_.begin_object();
    writer_.key("action").string(to_string(entry.action));
    address(entry.action == TraceAction::oom ? "device_free" : "addr", entry.address);
    number("size", entry.size);
    number("stream", entry.stream);
    number("time_us", entry.time_us);
    recorded_frames(entry.stack);
    writer_.key("compile_context").string("N/A");
    const std::string* text = named(snapshot_.texts, entry.user_metadata, "user_metadata");
    writer_.key("user_metadata").string(text == nullptr ? std::string_view() : *text);
    pair("pool_id", entry.pool_id);
    tag(entry.tag);
    writer_.end_object();
  }

  // One inner list a device: readers index them by a segment's device.
  void device_traces() {
    std::size_t devices = std::max(snapshot_.device_traces.size(), snapshot_.device_stats.size());
    for (const SegmentInfo& info : snapshot_.segments)
      devices = std::max(devices, static_cast<std::size_t>(std::max(info.device, 0)) + 1);
    writer_.key("device_traces").begin_array();
    for (std::size_t device = 0; device < devices; ++device) {
      writer_.begin_array();
      if (device < snapshot_.device_traces.size())
        for (const TraceEntry& entry : snapshot_.device_traces[device]) trace_entry(entry);
      writer_.end_array();
    }
    writer_.end_array();
  }

  void module(const ModuleInfo& info) {
    writer_.begin_object();
    writer_.key("path").string(info.path);
    writer_.key("build_id").string(info.build_id);
    writer_.end_object();
  }

  void annotation(const ExternalAnnotation& info) {
    writer_.begin_object();
    writer_.key("name").string(info.name);
    writer_.key("stage").string(info.is_start ? "START" : "END");
    number("device", info.device);
    number("time_us", info.time_us);
    writer_.end_object();
  }

  // All sixteen buckets, from 1 MiB to 32 GiB, whether they were set or not.
  void divisions() {
    std::map<std::int64_t, std::int64_t> buckets = snapshot_.settings.roundup_power2_divisions;
    for (int bucket = 0; bucket < 16; ++bucket) buckets.emplace(std::int64_t{1} << bucket, 0);
    writer_.key("roundup_power2_divisions").begin_object();
    for (const auto& [mebibytes, count] : buckets) number(std::to_string(mebibytes), count);
    writer_.end_object();
  }

  void settings() {
    const AllocatorSettings& info = snapshot_.settings;
    writer_.key("allocator_settings").begin_object();
    writer_.key("PYTORCH_CUDA_ALLOC_CONF").string(info.text);
    number("max_split_size", info.max_split_size);
    number("garbage_collection_threshold", info.garbage_collection_threshold);
    writer_.key("expandable_segments").boolean(info.expandable_segments);
    number("pinned_num_register_threads", info.pinned_num_register_threads);
    writer_.key("release_lock_on_cudamalloc").boolean(info.release_lock_on_cudamalloc);
    writer_.key("pinned_use_cuda_host_register").boolean(info.pinned_use_cuda_host_register);
    writer_.key("graph_capture_record_stream_reuse").boolean(info.graph_capture_record_stream_reuse);
    divisions();
    writer_.key("trace_alloc_overflowed").boolean(info.trace_alloc_overflowed);
    number("trace_alloc_max_entries", info.trace_alloc_max_entries);
    writer_.end_object();
  }

  void stats(const MemoryStats& info) {
    writer_.begin_object();
    for (const auto& [key, value] : info.flat()) number(key, value);
    writer_.end_object();
  }

  const Snapshot& snapshot_;
  Writer& writer_;
  Frames frames_;
};

}  // namespace

void write_pickle(const Snapshot& snapshot, std::ostream& out, int protocol) {
  PickleWriter writer(out, protocol);
  TorchSnapshotWriter<PickleWriter, PickleMemo>(snapshot, writer).write();
}

void write_pickle(const Snapshot& snapshot, const std::string& path, int protocol) {
  write_plain_or_gzip(path, [&](std::ostream& out) { write_pickle(snapshot, out, protocol); });
}

void write_torch_json(const Snapshot& snapshot, std::ostream& out) {
  JsonWriter writer(out);
  TorchSnapshotWriter<JsonWriter, InlineFrames>(snapshot, writer).write();
}

void write_torch_json(const Snapshot& snapshot, const std::string& path) {
  write_plain_or_gzip(path, [&snapshot](std::ostream& out) { write_torch_json(snapshot, out); });
}

}  // namespace cistern
