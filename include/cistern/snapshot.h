#pragma once

// Snapshots: every segment and block, who holds it and what happened to it, as values and as
// JSON with PyTorch's names.
//
// Thread safety: the functions may be called from any thread. A snapshot is a
// consistent cut: taken under the device's lock, one device after the other.

#include <cistern/export.h>
#include <cistern/history.h>
#include <cistern/stats.h>

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cistern {

enum class BlockState : std::uint8_t { inactive, active_allocated, active_pending_free };
// The viewer's words: "inactive", "active_allocated", "active_pending_free".
[[nodiscard]] CISTERN_EXPORT const char* to_string(BlockState state) noexcept;

// One call of a stack: where it was made. A frame whose code has no line information keeps an
// empty file and line 0; one whose function has no name is called by its place, "libc.so.6+0x2a1ca",
// or, in no file, by its address.
struct FrameInfo {
  std::string filename;
  std::int64_t line = 0;
  std::string name;           // of the function, demangled
  std::uint64_t address = 0;  // in the process that recorded it: where the call returns to
  std::int32_t module = -1;   // index in Snapshot::modules; -1: unknown
  std::uint64_t offset = 0;   // of `address` in the module's file, as its symbols count
};
// A file that the process ran, for tools that look names up later.
struct ModuleInfo {
  std::string path;
  std::string build_id;  // hexadecimal; "" if it has none
};
// A frame as stacks hold it: they share those that they have in common, however long its texts are.
class SharedFrame {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a frame is one that nobody shares yet
  SharedFrame(FrameInfo frame) : frame_(std::make_shared<const FrameInfo>(std::move(frame))) {}
  operator const FrameInfo&() const noexcept { return *frame_; }
  const FrameInfo* operator->() const noexcept { return frame_.get(); }

 private:
  std::shared_ptr<const FrameInfo> frame_;
};
// A stack, innermost call first. Each is listed once, in Snapshot::stacks, and named by its index.
using StackInfo = std::vector<SharedFrame>;
using StackIndex = std::int32_t;
inline constexpr StackIndex kNoStack = -1;
// A tag is named by its index in Snapshot::tags.
using TagIndex = std::int32_t;
inline constexpr TagIndex kNoTag = -1;

struct BlockInfo {
  std::uint64_t address = 0;
  std::int64_t size = 0;            // bytes, rounded
  std::int64_t requested_size = 0;  // bytes asked for; stale when the block is inactive
  BlockState state = BlockState::inactive;
  StackIndex stack = kNoStack;  // of the allocation
  TagIndex tag = kNoTag;        // innermost at the allocation
};

struct SegmentInfo {
  int device = 0;
  std::uint64_t address = 0;
  std::int64_t total_size = 0;      // bytes; the sum of the blocks
  std::int64_t allocated_size = 0;  // bytes of blocks in the caller's hands
  std::int64_t active_size = 0;     // the same and those awaited by other streams
  std::int64_t requested_size = 0;  // bytes asked for, of the active blocks
  std::int64_t stream = 0;          // the raw handle as a number; 0: the default stream
  bool is_large = false;            // "segment_type"
  std::pair<std::int64_t, std::int64_t> segment_pool_id{0, 0};
  bool is_expandable = false;
  // Of an expandable segment: the reserved addresses in which it grows. 0 where not known: PyTorch does not tell.
  std::uint64_t range_address = 0;
  std::int64_t range_size = 0;
  StackIndex stack = kNoStack;    // of the request that brought the segment
  std::vector<BlockInfo> blocks;  // by address, without gaps
};

// One event of a device's history.
struct TraceEntry {
  TraceAction action = TraceAction::alloc;
  std::uint64_t address = 0;  // of the block, segment or range; of an `oom`: the driver's free bytes
  std::int64_t size = 0;      // bytes: requested of a block; rounded of an `oom`; of the range otherwise
  std::int64_t stream = 0;    // as SegmentInfo::stream
  std::int64_t time_us = 0;   // microseconds since the Unix epoch
  std::pair<std::int64_t, std::int64_t> pool_id{0, 0};
  StackIndex stack = kNoStack;
  TagIndex tag = kNoTag;
  std::int32_t user_metadata = -1;  // index in Snapshot::texts; -1: none
};

// A range that a user marked while history was recorded.
struct ExternalAnnotation {
  std::string name;
  bool is_start = true;  // else its end
  int device = 0;
  std::int64_t time_us = 0;
};

struct AllocatorSettings {
  std::string text;  // the options last given
  std::int64_t max_split_size = -1;
  double garbage_collection_threshold = 0.0;
  bool expandable_segments = false;
  std::int64_t pinned_num_register_threads = 1;
  bool release_lock_on_cudamalloc = false;
  bool pinned_use_cuda_host_register = false;
  bool graph_capture_record_stream_reuse = false;
  std::map<std::int64_t, std::int64_t> roundup_power2_divisions;  // MiB -> divisions, 0: off
  bool trace_alloc_overflowed = false;                            // older entries were overwritten
  std::int64_t trace_alloc_max_entries = -1;                      // of the ring, a device; -1: unlimited
  // In our JSON alone, by the names and values of docs/options.md; nothing where a file does not tell.
  std::string policy;
  std::string pytorch_rules;
  std::optional<std::int64_t> max_non_split_rounding;  // bytes; -1: unlimited
};

struct CISTERN_EXPORT Snapshot {
  std::vector<SegmentInfo> segments;      // by device, then by address
  std::vector<MemoryStats> device_stats;  // of each device, at the same moment
  AllocatorSettings settings;
  std::vector<std::vector<TraceEntry>> device_traces;  // of each device, oldest first
  std::vector<ExternalAnnotation> external_annotations;
  std::vector<StackInfo> stacks;    // what the stack indices name
  std::vector<ModuleInfo> modules;  // what FrameInfo::module names
  std::vector<std::string> tags;    // what the tag indices name
  std::vector<std::string> texts;   // what user_metadata names
};

// The process-wide heap of every device.
[[nodiscard]] CISTERN_EXPORT Snapshot memory_snapshot();

// Writes `snapshot` as one JSON object: segments, device_traces, allocator_settings and
// external_annotations by torch.cuda.memory._snapshot's names, so that its viewer opens the
// file, and `device_stats`, the flat statistics of each device.
// Throws InvalidArgument, naming the path, if the file cannot be written.
CISTERN_EXPORT void write_json(const Snapshot& snapshot, std::ostream& out);
CISTERN_EXPORT void write_json(const Snapshot& snapshot, const std::string& path);

// The same with each stack in place of its index, as torch.cuda.memory._dump_snapshot writes it:
// for torch.cuda._memory_viz and every version of the viewer. device_traces has a list for each
// device, a pool's id is a list of two; `tags`, `tag`, `modules`, `device_stats` and the
// ranges of expandable segments are ours beside PyTorch's keys.
// A pickle holds containers, numbers and text alone, and each stack once where `protocol` is 4;
// 2 and 3 repeat stacks that were not used lately. Memory: a buffer, and some bytes a stack.
// Throws InvalidArgument for another protocol than 2, 3 or 4, an index that names no stack, tag or
// text, an address of 2^63 or more, and, naming the path, if the file cannot be written.
CISTERN_EXPORT void write_pickle(const Snapshot& snapshot, std::ostream& out, int protocol = 4);
CISTERN_EXPORT void write_pickle(const Snapshot& snapshot, const std::string& path, int protocol = 4);
// As JSON, for viewers that read it. Stacks are repeated: for large histories prefer the pickle.
CISTERN_EXPORT void write_torch_json(const Snapshot& snapshot, std::ostream& out);
CISTERN_EXPORT void write_torch_json(const Snapshot& snapshot, const std::string& path);

}  // namespace cistern
