// The options' text: any text is read or refused in one line, and what was read is what
// describe() says, so that an effective configuration can be given back.

#include <cistern/options.h>

#include <string>

#include "tests/fuzz/property.h"

namespace cistern {
namespace {

// describe() as a text of options. What has no value to write is at its default.
std::string as_text(const std::string& description) {
  std::string text;
  for (std::size_t start = 0; start < description.size();) {
    const std::size_t end = description.find('\n', start);
    const std::string line = description.substr(start, end - start);
    start = end + 1;
    if (line == "max_split_size_mb: unlimited" || line.starts_with("without effect: ")) continue;
    if (line == "roundup_power2_divisions: off" || line == "garbage_collection_threshold: off") continue;
    text += line + ',';
  }
  return text;
}

void require_equal(const AllocatorOptions& a, const AllocatorOptions& b) {
  require(a.policy == b.policy && a.pytorch_rules == b.pytorch_rules, "the policy and the rules are read back");
  require(a.max_split_size_bytes == b.max_split_size_bytes, "max_split_size is read back");
  require(a.max_non_split_rounding_bytes == b.max_non_split_rounding_bytes, "max_non_split_rounding is read back");
  require(a.roundup_power2_divisions == b.roundup_power2_divisions, "the divisions are read back");
  require(a.garbage_collection_threshold == b.garbage_collection_threshold, "the threshold is read back");
  require(a.decay_ms == b.decay_ms, "the decay is read back");
  require(a.stream_hand_over == b.stream_hand_over, "the hand-over is read back");
  require(a.per_process_memory_fraction == b.per_process_memory_fraction, "the fraction is read back");
  require(a.research_after_flush == b.research_after_flush, "research_after_flush is read back");
  require(a.graph_capture_record_stream_reuse == b.graph_capture_record_stream_reuse, "reuse is read back");
  require(a.history.enabled == b.history.enabled && a.history.context == b.history.context &&
              a.history.max_entries == b.history.max_entries && a.history.max_frames == b.history.max_frames &&
              a.history.max_stack_bytes == b.history.max_stack_bytes,
          "the history is read back");
  require(a.oom_dump == b.oom_dump && a.summary_title == b.summary_title, "the words are read back");
}

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  AllocatorOptions options;
  try {
    options = AllocatorOptions::parse(text);
  } catch (const Error& error) {
    require_one_line(error);
    return 0;
  }
  require(options.text == text, "the text is kept");
  // What is accepted is no reason to throw when it comes back: an exception here is a crash.
  const AllocatorOptions again = AllocatorOptions::parse(as_text(options.describe()));
  require_equal(options, again);
  return 0;
}
