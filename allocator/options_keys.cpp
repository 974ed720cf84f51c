#include "allocator/options_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "allocator/options_values.h"
#include "allocator/quoted_text.h"

namespace cistern {
namespace {

constexpr std::array<std::string_view, 5> kPolicies{"classic", "expandable", "paged", "async", "direct"};
constexpr std::array<std::string_view, 2> kRules{"current", "2.4"};
constexpr std::array<std::string_view, 2> kBackends{"native", "cudaMallocAsync"};
constexpr std::array<std::string_view, 2> kTitles{"cistern", "PyTorch"};
constexpr std::array<std::string_view, 4> kHandOvers{"fair", "wait", "done", "never"};
constexpr std::array<std::string_view, 3> kHistoryKinds{"none", "state", "all"};
constexpr std::array<std::string_view, 4> kHistoryContexts{"none", "state", "alloc", "all"};

void read_policy(const OptionPair& pair, OptionsReading& reading) {
  reading.policy = static_cast<Policy>(choice_value(pair, kPolicies));
}

void read_backend(const OptionPair& pair, OptionsReading& reading) {
  reading.backend_is_async = choice_value(pair, kBackends) == 1;
}

void read_expandable_segments(const OptionPair& pair, OptionsReading& reading) {
  reading.expandable_segments = boolean_value(pair);
}

void read_rules(const OptionPair& pair, OptionsReading& reading) {
  reading.options.pytorch_rules = static_cast<PytorchRules>(choice_value(pair, kRules));
}

void read_max_split_size(const OptionPair& pair, OptionsReading& reading) {
  const bool old_rules = reading.options.pytorch_rules == PytorchRules::v2_4;
  reading.options.max_split_size_bytes = mebibytes_value(pair, old_rules ? 21 : 20);
}

void read_max_non_split_rounding(const OptionPair& pair, OptionsReading& reading) {
  reading.options.max_non_split_rounding_bytes = mebibytes_value(pair, 20);
}

void read_garbage_collection_threshold(const OptionPair& pair, OptionsReading& reading) {
  constexpr std::string_view expected = "a number above 0 and below 1";
  const double threshold = number_value(pair, expected);
  if (!(threshold > 0.0 && threshold < 1.0)) fail_option(pair, expected);
  reading.options.garbage_collection_threshold = threshold;
}

void read_decay(const OptionPair& pair, OptionsReading& reading) {
  reading.options.decay_ms =
      !pair.is_list && pair.value == "off" ? 0 : integer_value(pair, 1, kLongestDecayMs, "of milliseconds (or off)");
}

void read_hand_over(const OptionPair& pair, OptionsReading& reading) {
  reading.options.stream_hand_over = static_cast<StreamHandOver>(choice_value(pair, kHandOvers));
}

void read_memory_fraction(const OptionPair& pair, OptionsReading& reading) {
  constexpr std::string_view expected = "a number from 0 to 1";
  const double fraction = number_value(pair, expected);
  if (!(fraction >= 0.0 && fraction <= 1.0)) fail_option(pair, expected);
  // A sign is no part of a share, and "-0" would be printed as one.
  reading.options.per_process_memory_fraction = fraction == 0.0 ? 0.0 : fraction;
  reading.options.fraction_given = true;
}

void read_research_after_flush(const OptionPair& pair, OptionsReading& reading) {
  reading.options.research_after_flush = boolean_value(pair);
}

void read_capture_reuse(const OptionPair& pair, OptionsReading& reading) {
  reading.options.graph_capture_record_stream_reuse = boolean_value(pair);
}

void read_oom_dump(const OptionPair& pair, OptionsReading& reading) {
  reading.options.oom_dump = single_value(pair, "stderr, stdout, off or a file's path");
}

void read_summary_title(const OptionPair& pair, OptionsReading& reading) {
  reading.options.summary_title = kTitles[choice_value(pair, kTitles)];
}

HistoryOptions& history_of(OptionsReading& reading) {
  reading.options.history_given = true;
  return reading.options.history;
}

void read_history(const OptionPair& pair, OptionsReading& reading) {
  history_of(reading).enabled = static_cast<HistoryEnabled>(choice_value(pair, kHistoryKinds));
}

void read_history_context(const OptionPair& pair, OptionsReading& reading) {
  history_of(reading).context = static_cast<HistoryContext>(choice_value(pair, kHistoryContexts));
}

void read_history_entries(const OptionPair& pair, OptionsReading& reading) {
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  history_of(reading).max_entries =
      !pair.is_list && pair.value == "unlimited" ? kUnlimitedEntries : integer_value(pair, 1, most, "(or unlimited)");
}

void read_history_frames(const OptionPair& pair, OptionsReading& reading) {
  history_of(reading).max_frames = integer_value(pair, 1, 128);
}

void read_history_stack_bytes(const OptionPair& pair, OptionsReading& reading) {
  history_of(reading).max_stack_bytes = mebibytes_value(pair, 1);
}

// Divisions between powers of two: `text` is all or part of the pair's value.
std::uint32_t divisions_value(const OptionPair& pair, std::string_view text, bool zero_allowed) {
  constexpr std::uint64_t most = std::uint64_t{1} << 31;
  std::uint64_t divisions = 0;
  if (!parse_integer(text, divisions) || divisions > most ||
      !(std::has_single_bit(divisions) || (zero_allowed && divisions == 0)))
    fail_option(pair, fmt::format("divisions of {}a power of two up to {}, not {}", zero_allowed ? "0 or " : "", most,
                                  quoted_text(text)));
  return static_cast<std::uint32_t>(divisions);
}

std::size_t bucket_of(const OptionPair& pair, std::string_view boundary, std::size_t buckets) {
  std::uint64_t mebibytes = 0;
  if (!parse_integer(boundary, mebibytes) || !std::has_single_bit(mebibytes))
    fail_option(pair, fmt::format("boundaries of a power of two in MiB, or '>', not {}", quoted_text(boundary)));
  return std::min(static_cast<std::size_t>(std::countr_zero(mebibytes)), buckets - 1);
}

// The first boundary also fills the buckets below it; '>' fills upwards. Under 2.4 it starts
// at the boundary named before it and so overwrites it, since then one above.
void read_divisions_list(const OptionPair& pair, OptionsReading& reading) {
  auto& buckets = reading.options.roundup_power2_divisions;
  const bool old_rules = reading.options.pytorch_rules == PytorchRules::v2_4;
  buckets.fill(0);
  bool first = true;
  std::size_t last = 0;
  for (const OptionItem& item : pair.items) {
    const std::uint32_t divisions = divisions_value(pair, item.value, true);
    if (item.name == ">") {
      for (std::size_t bucket = last + (old_rules ? 0 : 1); bucket < buckets.size(); ++bucket)
        buckets[bucket] = divisions;
      continue;
    }
    last = bucket_of(pair, item.name, buckets.size());
    for (std::size_t bucket = 0; first && bucket < last; ++bucket) buckets[bucket] = divisions;
    buckets[last] = divisions;
    first = false;
  }
}

void read_divisions(const OptionPair& pair, OptionsReading& reading) {
  if (pair.is_list)
    read_divisions_list(pair, reading);
  else
    reading.options.roundup_power2_divisions.fill(divisions_value(pair, pair.value, false));
}

void read_host_register(const OptionPair& pair, OptionsReading& reading) {
  reading.options.pinned_use_cuda_host_register = boolean_value(pair);
}

void read_register_threads(const OptionPair& pair, OptionsReading& reading) {
  constexpr std::uint64_t most = 128;
  std::uint64_t threads = 0;
  if (!parse_integer(single_value(pair, "a power of two"), threads) || !std::has_single_bit(threads))
    fail_option(pair, "a power of two");
  if (threads > most) fail_option(pair, fmt::format("at most {} threads", most));
  reading.options.pinned_num_register_threads = threads;
}

struct Key {
  std::string_view name;
  void (*read)(const OptionPair& pair, OptionsReading& reading);
};
constexpr std::array<Key, 23> kKeys{{
    {"backend", read_backend},
    {"decay_ms", read_decay},
    {"stream_hand_over", read_hand_over},
    {"expandable_segments", read_expandable_segments},
    {"garbage_collection_threshold", read_garbage_collection_threshold},
    {"graph_capture_record_stream_reuse", read_capture_reuse},
    {"history", read_history},
    {"history_context", read_history_context},
    {"history_entries", read_history_entries},
    {"history_frames", read_history_frames},
    {"history_stacks_mb", read_history_stack_bytes},
    {"max_non_split_rounding_mb", read_max_non_split_rounding},
    {"max_split_size_mb", read_max_split_size},
    {"oom_dump", read_oom_dump},
    {"per_process_memory_fraction", read_memory_fraction},
    {"pinned_num_register_threads", read_register_threads},
    {"pinned_use_cuda_host_register", read_host_register},
    {"pinned_use_hip_host_register", read_host_register},
    {"policy", read_policy},
    {"pytorch_rules", read_rules},
    {"research_after_flush", read_research_after_flush},
    {"roundup_power2_divisions", read_divisions},
    {"summary_title", read_summary_title},
}};

// Checks of values that change nothing here. Each returns whether the value asks for more
// than what happens anyway: only then is there something to say.
bool asks_for_true(const OptionPair& pair) { return boolean_value(pair); }

bool asks_for_mebibytes(const OptionPair& pair) {
  [[maybe_unused]] const std::size_t bytes = mebibytes_value(pair, 0);
  return true;
}

bool asks_for_some_mebibytes(const OptionPair& pair) {
  [[maybe_unused]] const std::size_t bytes = mebibytes_value(pair, 1);
  return true;
}

bool asks_for_segment_size(const OptionPair& pair) { return mebibytes_value(pair, 11) != std::size_t{20} << 20; }

bool asks_for_reserve(const OptionPair& pair) {
  constexpr std::string_view expected = "a share of the device's memory, or gibibytes such as 64G";
  std::string_view value = single_value(pair, expected);
  std::uint64_t gibibytes = 0;
  double share = 0;
  const bool is_size = value.ends_with('G') && parse_integer(value.substr(0, value.size() - 1), gibibytes);
  if (!is_size && !(parse_number(value, share) && share >= 0.0)) fail_option(pair, expected);
  return true;
}

bool asks_for_reserve_by_class(const OptionPair& pair) {
  if (!pair.is_list) fail_option(pair, "a list [name:value,...]");
  return true;
}

struct KeyWithoutEffect {
  std::string_view name;
  bool (*asks)(const OptionPair& pair);
  std::string_view reason;
};
constexpr std::string_view kNoLock = "cistern never holds a lock across a driver call that can block";
constexpr std::string_view kHostCache = "freed host blocks of every size are kept, until empty_host_cache";
constexpr std::string_view kFixedReserve = "address ranges are of an eighth more than the device's memory";
constexpr std::array<KeyWithoutEffect, 11> kKeysWithoutEffect{{
    {"expandable_segments_reserve", asks_for_reserve, kFixedReserve},
    {"expandable_segments_reserve_by_class", asks_for_reserve_by_class, kFixedReserve},
    {"large_segment_size_mb", asks_for_segment_size, "segments of the large pool are of 20 MiB"},
    {"pinned_free_catch_all", asks_for_true, "a free of what is no block is always told, and never ends the program"},
    {"pinned_max_cached_size_mb", asks_for_mebibytes, kHostCache},
    {"pinned_max_round_threshold_mb", asks_for_mebibytes,
     "host blocks are never a page larger than what is asked for above 1 MiB"},
    {"pinned_reserve_segment_size_mb", asks_for_some_mebibytes,
     "segments of host memory come as they are needed, and their parts serve all sizes"},
    {"pinned_use_background_threads", asks_for_true,
     "a request asks an event a stream, without a lock; no thread does it"},
    {"release_lock_on_cudamalloc", asks_for_true, kNoLock},
    {"release_lock_on_hipmalloc", asks_for_true, kNoLock},
    {"throw_on_cudamalloc_oom", asks_for_true, "a request is refused only after the driver refused it"},
}};

[[noreturn]] void fail_unknown(const OptionPair& pair) {
  std::string names;
  const auto append = [&names](std::string_view name) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  };
  for (const Key& key : kKeys) append(key.name);
  for (const KeyWithoutEffect& key : kKeysWithoutEffect) append(key.name);
  fail_option(pair, fmt::format("a known key: {}", names));
}

}  // namespace

void apply_option(const OptionPair& pair, OptionsReading& reading) {
  const auto is_named = [&pair](const auto& key) { return key.name == pair.key; };
  if (const auto key = std::find_if(kKeys.begin(), kKeys.end(), is_named); key != kKeys.end())
    return key->read(pair, reading);
  const auto key = std::find_if(kKeysWithoutEffect.begin(), kKeysWithoutEffect.end(), is_named);
  if (key == kKeysWithoutEffect.end()) fail_unknown(pair);
  reading.without_effect.erase(pair.key);
  if (key->asks(pair)) reading.without_effect.emplace(key->name, key->reason);
}

PytorchRules rules_of(const std::vector<OptionPair>& pairs, PytorchRules otherwise) {
  OptionsReading reading;
  reading.options.pytorch_rules = otherwise;
  for (const OptionPair& pair : pairs)
    if (pair.key == "pytorch_rules") read_rules(pair, reading);
  return reading.options.pytorch_rules;
}

std::string_view to_string(HistoryEnabled enabled) noexcept { return kHistoryKinds[static_cast<std::size_t>(enabled)]; }
std::string_view to_string(HistoryContext context) noexcept {
  return kHistoryContexts[static_cast<std::size_t>(context)];
}
std::string_view to_string(PytorchRules rules) noexcept { return kRules[static_cast<std::size_t>(rules)]; }

}  // namespace cistern
