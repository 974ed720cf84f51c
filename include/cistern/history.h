#pragma once

// History: what happened to a device's memory lately, event by event, and who asked for it.
//
// A ring of small entries for each device is always written, without stacks; record_history makes
// it larger, adds stacks, or turns it off. Snapshots hold it (Snapshot::device_traces). The names and
// meanings are those of torch.cuda.memory._record_memory_history; docs/statistics.md has the rules.
//
// Thread safety: everything here may be called from any thread at any time; an entry is whole, and by the
// old or the new options. Of a request that asks the driver while they change, the entries from before
// the change are by the old ones and those after it by the new, with the stack that it had gathered.
// Nothing here touches a stream.

#include <cistern/device.h>
#include <cistern/export.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

// What an entry tells: PyTorch's words, which to_string gives.
enum class TraceAction : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  snapshot,
  oom,
  annotate,
};
[[nodiscard]] CISTERN_EXPORT const char* to_string(TraceAction action) noexcept;
// The action of that name. Throws InvalidArgument naming it and what was expected.
[[nodiscard]] CISTERN_EXPORT TraceAction trace_action(std::string_view name);

enum class HistoryEnabled {
  none,   // off; what was recorded is dropped
  state,  // the stacks of live blocks, and one entry
  all,    // the ring
};
// Which stacks are gathered; each includes those before it. A free without a stack of its own
// carries that of its allocation; what a request does on its way carries the request's.
enum class HistoryContext {
  none,
  state,  // of live blocks and segments
  alloc,  // and entries keep them
  all,    // and those of frees and of empty_cache
};
// PyTorch's words: `python` leaves native frames out. A C++ program has no others.
enum class HistoryStacks { python, all };

inline constexpr std::size_t kUnlimitedEntries = std::numeric_limits<std::size_t>::max();
// The ring that is there before anybody asks for one: 0.75 MiB a device.
inline constexpr std::size_t kDefaultHistoryEntries = 16384;

struct HistoryOptions {
  HistoryEnabled enabled = HistoryEnabled::all;
  HistoryContext context = HistoryContext::all;
  HistoryStacks stacks = HistoryStacks::all;
  // Of each device's ring, at least 1; 48 bytes each. 1 is used unless `enabled` is all. Fewer than
  // are held drops none: the ring keeps the size of what it holds, unless it is cleared.
  std::size_t max_entries = kUnlimitedEntries;
  // Calls of a stack that are kept, innermost first: 1 to 128.
  std::size_t max_frames = 64;
  // What a device's stacks may take, in bytes. Beyond it new stacks are left out (and counted).
  std::size_t max_stack_bytes = std::size_t{64} << 20;
  bool clear_history = false;                  // drop what was recorded before
  std::vector<TraceAction> skip_actions = {};  // not recorded

  // What is in force before record_history: the ring, without stacks.
  [[nodiscard]] static HistoryOptions always_on() {
    HistoryOptions options;
    options.context = HistoryContext::none;
    options.max_entries = kDefaultHistoryEntries;
    return options;
  }
};

// What a device's history holds and costs.
struct HistoryInfo {
  std::size_t entries = 0;        // held
  std::uint64_t recorded = 0;     // since it was cleared
  std::uint64_t lost = 0;         // not recorded: no host memory for the first entry, or beside a snapshot's
  std::size_t stacks = 0;         // distinct, held
  std::size_t stack_bytes = 0;    // they take
  std::uint64_t stacks_lost = 0;  // left out: max_stack_bytes, or no host memory
  // Stacks that were gathered by each way, and what one took on average; by frame pointers where
  // every caller keeps one, which the unwind tables have confirmed for each.
  std::uint64_t by_frame_pointers = 0;
  double ns_by_frame_pointers = 0;
  std::uint64_t by_unwind_tables = 0;
  double ns_by_unwind_tables = 0;
};

// Records from now on by `options`, on all devices. Throws InvalidArgument naming an option out of
// range; std::bad_alloc. Either way nothing is changed. Other threads wait while a ring that
// overwrites is copied into a larger one, and, when it is turned off, while all blocks are walked.
CISTERN_EXPORT void record_history(const HistoryOptions& options = {});
[[nodiscard]] CISTERN_EXPORT HistoryOptions history_options();
[[nodiscard]] CISTERN_EXPORT HistoryInfo history_info(Device device = {});

// What entries carry as `user_metadata` from now on, on all devices, such as "step 17"; "": nothing.
// At most 65,535 texts are held at once, and more are left out. Throws std::bad_alloc: then nothing is
// changed, on any device.
CISTERN_EXPORT void set_user_metadata(std::string_view text);
[[nodiscard]] CISTERN_EXPORT std::string user_metadata();
// Records a text for a live block: an entry `annotate`. Throws InvalidArgument if no live block
// begins at `pointer`.
CISTERN_EXPORT void annotate(void* pointer, std::string_view text);

// Marks a range of the program in the history, for as long as it lives: two entries in
// Snapshot::external_annotations. They are kept in a ring as large as a device's.
class CISTERN_EXPORT AnnotatedRange {
 public:
  // `device`: that the range is said to be of. Throws InvalidArgument for one that is not there.
  explicit AnnotatedRange(std::string_view name, Device device = {});
  ~AnnotatedRange();
  AnnotatedRange(const AnnotatedRange&) = delete;
  AnnotatedRange& operator=(const AnnotatedRange&) = delete;

 private:
  std::string name_;
  int device_ = 0;
};

}  // namespace cistern
