#pragma once

// The members of a snapshot in our JSON: for those who have all of it at hand, and for those who
// write it as they go. Nothing here takes host memory.

#include <cistern/snapshot.h>

#include "stats/json_writer.h"

#include <cstdint>
#include <string_view>

namespace cistern {

// All of a segment but its blocks: write_block for each, then end_segment.
void begin_segment(JsonWriter& json, const SegmentInfo& segment);
void write_block(JsonWriter& json, const BlockInfo& block);
void end_segment(JsonWriter& json);
// An entry of a device's trace, in a list. In place of an index its text itself.
void write_entry(JsonWriter& json, const TraceEntry& entry, std::string_view user_metadata);
void write_frame(JsonWriter& json, const FrameInfo& frame);
void write_annotation(JsonWriter& json, std::string_view name, bool is_start, int device, std::int64_t time_us);
void write_settings(JsonWriter& json, const AllocatorSettings& settings);
// The flat map.
void write_stats(JsonWriter& json, const MemoryStats& stats);

}  // namespace cistern
