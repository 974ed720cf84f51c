#pragma once

// The allocator's options, as a struct for an allocator of one's own and as text in
// PyTorch's grammar for the process-wide heap (CISTERN_ALLOC_CONF, set_options).
// docs/options.md lists every key.

#include <cistern/export.h>
#include <cistern/history.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

// How requests are placed.
enum class Policy {
  classic,     // PyTorch's default rules, exactly: what any device can do
  expandable,  // PyTorch's expandable_segments:True, exactly; classic where a device lacks what it needs
  paged,       // cistern's own and the default (docs/paged-policy.md); classic where a device lacks what it needs
  async,       // the driver's stream-ordered pools (cuMemAllocAsync), see docs/options.md
  direct,      // no caching: each call reaches the driver
};
[[nodiscard]] CISTERN_EXPORT const char* to_string(Policy policy) noexcept;

// Which release's rules `classic` and `expandable` follow where they differ: see docs/options.md.
enum class PytorchRules { current, v2_4 };

// Which free bytes of other streams a request of policy `paged` may have.
enum class StreamHandOver {
  fair,   // as `wait`; but a stream that others stall at every other block, 16 times, has its own from then on
  wait,   // any: the device waits, on the request's stream, for what theirs have queued
  done,   // those whose streams have nothing queued; any where the driver or a limit refuses more
  never,  // none
};

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct AllocatorOptions {
  Policy policy = Policy::paged;
  PytorchRules pytorch_rules = PytorchRules::current;
  // Blocks of this many bytes or more are never split, and never serve smaller requests.
  std::size_t max_split_size_bytes = kUnlimited;
  // A request of at least max_split_size_bytes takes a block that is less than this much larger.
  std::size_t max_non_split_rounding_bytes = std::size_t{20} << 20;
  // Divisions between powers of two, by floor(log2(size in MiB)) in 0..15; 0 or 1: off.
  std::array<std::uint32_t, 16> roundup_power2_divisions{};
  // Share of the limit above which cached segments are given back by age; 0: off.
  double garbage_collection_threshold = 0.0;
  // Memory of policy `paged` that is free, and that nobody used for so many milliseconds, is given back to the driver
  // by a request that comes then, without waiting for the device; 0: off.
  std::uint64_t decay_ms = 0;
  StreamHandOver stream_hand_over = StreamHandOver::fair;
  // Share of the device's memory that may be held; 1: all of it.
  double per_process_memory_fraction = 1.0;
  // Search the free blocks again after a full flush, before asking the driver.
  bool research_after_flush = false;
  // Reuse a block within a capture, although other streams of the capture used it, once the graph's
  // edges order all later work of its stream behind them. Not under the rules of 2.4.
  bool graph_capture_record_stream_reuse = false;
  // Where the summary goes when memory runs out: "stderr", "stdout", "off" or a file to append to,
  // beside which a snapshot is written.
  std::string oom_dump = "stderr";
  // The word in the summary's title: "cistern", or "PyTorch" for the original text.
  std::string summary_title = "cistern";
  // Page-locked host memory is plain memory whose pages this many threads bring in and the driver then locks
  // (cuMemHostRegister), instead of the driver's own (cuMemHostAlloc). What is there already stays what it is.
  bool pinned_use_cuda_host_register = false;
  std::size_t pinned_num_register_threads = 1;  // a power of two, at most 128
  // What the history records from the start; record_history replaces it.
  HistoryOptions history = HistoryOptions::always_on();

  // The text these options were read from, known keys that have no effect (one line each,
  // key and reason), and whether the text named a memory fraction, or anything of the history.
  std::string text{};
  std::vector<std::string> without_effect{};
  bool fraction_given = false;
  bool history_given = false;

  // Reads "key:value,key:[a:b,c:d]". As in PyTorch, a text that leaves out max_split_size_mb,
  // max_non_split_rounding_mb, roundup_power2_divisions or garbage_collection_threshold resets
  // them, and other options keep what `base` has. Throws InvalidArgument naming the key, the
  // value and what was expected.
  [[nodiscard]] CISTERN_EXPORT static AllocatorOptions parse(std::string_view text, const AllocatorOptions& base);
  [[nodiscard]] CISTERN_EXPORT static AllocatorOptions parse(std::string_view text);
  // One "key: value" line for each option in force, then the keys without effect, with the reason.
  [[nodiscard]] CISTERN_EXPORT std::string describe() const;
};

}  // namespace cistern
