#include "stats/snapshot_members.h"

#include <cistern/fixed_text.h>
#include <fmt/format.h>

#include "stats/fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace cistern {
namespace {

// Readers of PyTorch's form expect the list of frames, which stand in the table of stacks.
void write_stack(JsonWriter& json, StackIndex stack) {
  json.key("frames").begin_array().end_array();
  if (stack != kNoStack) json.key("stack").number(stack);
}

void write_pair(JsonWriter& json, std::pair<std::int64_t, std::int64_t> pair) {
  json.begin_array().number(pair.first).number(pair.second).end_array();
}

// Text of one entry but its last member's, put together without a writer: there may be millions.
class EntryText {
 public:
  explicit EntryText(const TraceEntry& entry) {
    put("{\"action\": \"").put(to_string(entry.action));
    put(entry.action == TraceAction::oom ? "\", \"device_free\": " : "\", \"addr\": ").put(entry.address);
    put(", \"size\": ").put(entry.size);
    put(", \"stream\": ").put(entry.stream);
    put(", \"time_us\": ").put(entry.time_us);
    put(", \"pool_id\": [").put(entry.pool_id.first).put(", ").put(entry.pool_id.second);
    put("], \"compile_context\": \"N/A\"");
    if (entry.stack != kNoStack) put(", \"stack\": ").put(entry.stack);
    if (entry.tag != kNoTag) put(", \"tag\": ").put(entry.tag);
    put(", \"user_metadata\": ");
  }
  [[nodiscard]] std::string_view view() const { return {text_.data(), static_cast<std::size_t>(end_ - text_.data())}; }

 private:
  EntryText& put(std::string_view text) {
    const auto room = static_cast<std::size_t>(text_.data() + text_.size() - end_);
    end_ = std::copy_n(text.data(), std::min(text.size(), room), end_);
    return *this;
  }
  template <std::integral Number>
  EntryText& put(Number number) {
    end_ = std::to_chars(end_, text_.data() + text_.size(), number).ptr;
    return *this;
  }

  std::array<char, 512> text_;  // the longest has 180 characters of names and eight numbers of 20
  char* end_ = text_.data();
};

// All sixteen buckets, from 1 MiB to 32 GiB, whether they were set or not, and others that were.
void write_divisions(JsonWriter& json, const std::map<std::int64_t, std::int64_t>& divisions) {
  const auto write = [&json](std::int64_t mebibytes, std::int64_t count) {
    const fmt::format_int name(mebibytes);
    json.key({name.data(), name.size()}).number(count);
  };
  json.begin_object();
  auto given = divisions.begin();
  for (int i = 0; i < 16; ++i) {
    const std::int64_t bucket = std::int64_t{1} << i;
    for (; given != divisions.end() && given->first < bucket; ++given) write(given->first, given->second);
    const bool is_given = given != divisions.end() && given->first == bucket;
    write(bucket, is_given ? (given++)->second : 0);
  }
  for (; given != divisions.end(); ++given) write(given->first, given->second);
  json.end_object();
}

}  // namespace

void begin_segment(JsonWriter& json, const SegmentInfo& segment) {
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
  if (segment.range_size != 0) {
    json.key("range_address").number(segment.range_address);
    json.key("range_size").number(segment.range_size);
  }
  write_stack(json, segment.stack);
  json.key("blocks").begin_array();
}

void end_segment(JsonWriter& json) { json.end_array().end_object(); }

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

void write_entry(JsonWriter& json, const TraceEntry& entry, std::string_view user_metadata) {
  json.verbatim_object(EntryText(entry).view(), user_metadata);
}

void write_frame(JsonWriter& json, const FrameInfo& frame) {
  json.begin_object();
  json.key("name").string(frame.name);
  json.key("filename").string(frame.filename);
  json.key("line").number(frame.line);
  json.key("address").number(frame.address);
  if (frame.module >= 0) json.key("module").number(frame.module).key("offset").number(frame.offset);
  json.end_object();
}

void write_annotation(JsonWriter& json, std::string_view name, bool is_start, int device, std::int64_t time_us) {
  json.begin_object();
  json.key("name").string(name);
  json.key("stage").string(is_start ? "START" : "END");
  json.key("device").number(device);
  json.key("time_us").number(time_us);
  json.end_object();
}

void write_settings(JsonWriter& json, const AllocatorSettings& settings) {
  json.begin_object();
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
  if (!settings.policy.empty()) json.key("policy").string(settings.policy);
  if (!settings.pytorch_rules.empty()) json.key("pytorch_rules").string(settings.pytorch_rules);
  if (settings.max_non_split_rounding) json.key("max_non_split_rounding").number(*settings.max_non_split_rounding);
  json.end_object();
}

void write_stats(JsonWriter& json, const MemoryStats& stats) {
  using Name = FixedText<64>;
  const auto write_metrics = [&json](const Name& prefix, const Stat& stat) {
    for (const MetricField& metric : kMetricFields)
      json.key(Name(prefix).append(".").append(metric.name)).number(stat.*metric.member);
  };
  json.begin_object();
  for (const PoolStatField& field : kPoolStatFields)
    for (const PoolField& pool : kPoolFields)
      write_metrics(Name(field.name).append(".").append(pool.name), stats.*field.member.*pool.member);
  for (const StatField& field : kStatFields) write_metrics(Name(field.name), stats.*field.member);
  for (const CounterField& field : kCounterFields) json.key(field.name).number(stats.*field.member);
  json.end_object();
}

}  // namespace cistern
