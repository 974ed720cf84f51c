#include <cistern/error.h>
#include <cistern/options.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "allocator/options_grammar.h"
#include "allocator/options_keys.h"
#include "allocator/quoted_text.h"

namespace cistern {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

[[noreturn]] void fail_contradiction(std::string_view key, std::string_view value, std::string_view other) {
  throw InvalidArgument(fmt::format("option {}: {}: contradicts {}: expected one or the other", quoted_text(key),
                                    quoted_text(value), quoted_text(other)));
}

// The three keys that choose a policy, when more than one of them is given.
void check_contradictions(const OptionsReading& reading) {
  const bool expandable = reading.expandable_segments.value_or(false);
  const bool async = reading.backend_is_async.value_or(false);
  if (expandable && async) fail_contradiction("expandable_segments", "True", "backend:cudaMallocAsync");
  if (!reading.policy) return;
  const std::string given = fmt::format("policy:{}", to_string(*reading.policy));
  const bool is_expandable = *reading.policy == Policy::expandable;
  const bool is_async = *reading.policy == Policy::async;
  if (reading.expandable_segments && expandable != is_expandable && (expandable || is_expandable))
    fail_contradiction("expandable_segments", expandable ? "True" : "False", given);
  if (reading.backend_is_async && async != is_async)
    fail_contradiction("backend", async ? "cudaMallocAsync" : "native", given);
}

void choose_policy(OptionsReading& reading) {
  check_contradictions(reading);
  Policy& policy = reading.options.policy;
  if (reading.policy) {
    policy = *reading.policy;
  } else if (reading.expandable_segments.value_or(false)) {
    policy = Policy::expandable;
  } else if (reading.backend_is_async.value_or(false)) {
    policy = Policy::async;
  } else if ((reading.expandable_segments && policy == Policy::expandable) ||
             (reading.backend_is_async && policy == Policy::async)) {
    policy = Policy::classic;
  }
}

bool has_fraction(const AllocatorOptions& options, const AllocatorOptions& base) {
  const double fraction = options.per_process_memory_fraction;
  // Under 2.4 a fraction of 1 is a limit like any other.
  return fraction < 1.0 ||
         (options.pytorch_rules == PytorchRules::v2_4 && (options.fraction_given || base.fraction_given));
}

// Keys that have an effect as such, but none beside the others that are given.
void note_idle_keys(const std::vector<OptionPair>& pairs, OptionsReading& reading, const AllocatorOptions& base) {
  AllocatorOptions& options = reading.options;
  const auto note = [&](std::string_view key, std::string_view reason) {
    const bool given = std::any_of(pairs.begin(), pairs.end(), [&](const OptionPair& pair) { return pair.key == key; });
    if (given) reading.without_effect.emplace(key, reason);
  };
  if (options.policy == Policy::direct || options.policy == Policy::async) {
    const std::string_view reason = options.policy == Policy::direct
                                        ? "policy direct caches nothing"
                                        : "under policy async the driver's pool keeps what is free";
    for (std::string_view key : {"garbage_collection_threshold", "max_non_split_rounding_mb", "max_split_size_mb",
                                 "pytorch_rules", "research_after_flush", "roundup_power2_divisions"})
      note(key, reason);
  }
  if (options.policy == Policy::paged) {
    constexpr std::string_view reason = "acts in private pools alone: policy paged keeps no cached segments";
    for (std::string_view key : {"max_non_split_rounding_mb", "max_split_size_mb", "research_after_flush"})
      note(key, reason);
  }
  if (options.policy != Policy::paged)
    for (std::string_view key : {"decay_ms", "stream_hand_over"}) note(key, "acts under policy paged alone");
  if (!has_fraction(options, base))
    note("garbage_collection_threshold",
         "acts only while a memory fraction limits the heap: give per_process_memory_fraction, or set it by call");
  if (options.pytorch_rules == PytorchRules::v2_4) {
    note("max_non_split_rounding_mb", "is 20 MiB under pytorch_rules:2.4");
    options.max_non_split_rounding_bytes = AllocatorOptions{}.max_non_split_rounding_bytes;
    if (options.graph_capture_record_stream_reuse)
      note("graph_capture_record_stream_reuse", "pytorch_rules:2.4 has no reuse within a capture");
    options.graph_capture_record_stream_reuse = false;
  }
  if (!options.pinned_use_cuda_host_register && options.pinned_num_register_threads != 1)
    note("pinned_num_register_threads", "acts only with pinned_use_cuda_host_register:True");
  if (options.max_split_size_bytes == kUnlimited) note("max_non_split_rounding_mb", "acts only with max_split_size_mb");
}

std::string mebibytes_text(std::size_t bytes) {
  return bytes % kMiB == 0 ? fmt::format("{}", bytes / kMiB) : fmt::format("{} bytes", bytes);
}

std::string divisions_text(const std::array<std::uint32_t, 16>& buckets) {
  if (std::all_of(buckets.begin(), buckets.end(), [&](std::uint32_t bucket) { return bucket == buckets.front(); }))
    return buckets.front() == 0 ? "off" : fmt::format("{}", buckets.front());
  std::string text = "[";
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket)
    fmt::format_to(std::back_inserter(text), "{}{}:{}", bucket == 0 ? "" : ",", std::size_t{1} << bucket,
                   buckets[bucket]);
  return text + "]";
}

std::string_view name_of(StreamHandOver hand_over) {
  if (hand_over == StreamHandOver::fair) return "fair";
  if (hand_over == StreamHandOver::wait) return "wait";
  return hand_over == StreamHandOver::done ? "done" : "never";
}

}  // namespace

const char* to_string(Policy policy) noexcept {
  switch (policy) {
    case Policy::classic:
      return "classic";
    case Policy::expandable:
      return "expandable";
    case Policy::paged:
      return "paged";
    case Policy::async:
      return "async";
    case Policy::direct:
      return "direct";
  }
  return "unknown";
}

AllocatorOptions AllocatorOptions::parse(std::string_view text, const AllocatorOptions& base) {
  const std::vector<OptionPair> pairs = parse_option_pairs(text);
  const AllocatorOptions defaults;
  OptionsReading reading;
  reading.options = base;
  AllocatorOptions& options = reading.options;
  options.text = text;
  options.without_effect.clear();
  options.fraction_given = options.history_given = false;
  options.max_split_size_bytes = defaults.max_split_size_bytes;
  options.max_non_split_rounding_bytes = defaults.max_non_split_rounding_bytes;
  options.roundup_power2_divisions = defaults.roundup_power2_divisions;
  options.garbage_collection_threshold = defaults.garbage_collection_threshold;
  options.pytorch_rules = rules_of(pairs, base.pytorch_rules);

  for (const OptionPair& pair : pairs) {
    // Its value is checked above, and an earlier one of several must not count in between.
    if (pair.key != "pytorch_rules") apply_option(pair, reading);
  }
  choose_policy(reading);
  note_idle_keys(pairs, reading, base);
  for (const auto& [key, reason] : reading.without_effect)
    options.without_effect.push_back(fmt::format("{}: {}", key, reason));
  return std::move(options);
}

AllocatorOptions AllocatorOptions::parse(std::string_view text) { return parse(text, AllocatorOptions{}); }

std::string AllocatorOptions::describe() const {
  std::string lines;
  const auto line = [&lines](std::string_view key, std::string_view value) {
    fmt::format_to(std::back_inserter(lines), "{}: {}\n", key, value);
  };
  line("policy", to_string(policy));
  line("pytorch_rules", cistern::to_string(pytorch_rules));
  line("max_split_size_mb",
       max_split_size_bytes == kUnlimited ? std::string("unlimited") : mebibytes_text(max_split_size_bytes));
  line("max_non_split_rounding_mb", mebibytes_text(max_non_split_rounding_bytes));
  line("roundup_power2_divisions", divisions_text(roundup_power2_divisions));
  line("garbage_collection_threshold",
       garbage_collection_threshold == 0.0 ? std::string("off") : fmt::format("{}", garbage_collection_threshold));
  line("decay_ms", decay_ms == 0 ? std::string("off") : fmt::to_string(decay_ms));
  line("stream_hand_over", name_of(stream_hand_over));
  line("per_process_memory_fraction", fmt::format("{}", per_process_memory_fraction));
  line("research_after_flush", research_after_flush ? "True" : "False");
  line("graph_capture_record_stream_reuse", graph_capture_record_stream_reuse ? "True" : "False");
  line("pinned_use_cuda_host_register", pinned_use_cuda_host_register ? "True" : "False");
  line("pinned_num_register_threads", fmt::to_string(pinned_num_register_threads));
  line("oom_dump", oom_dump);
  line("summary_title", summary_title);
  line("history", cistern::to_string(history.enabled));
  line("history_context", cistern::to_string(history.context));
  line("history_entries", history.max_entries == kUnlimitedEntries ? "unlimited" : fmt::to_string(history.max_entries));
  line("history_frames", fmt::to_string(history.max_frames));
  line("history_stacks_mb", mebibytes_text(history.max_stack_bytes));
  for (const std::string& entry : without_effect) line("without effect", entry);
  return lines;
}

}  // namespace cistern
