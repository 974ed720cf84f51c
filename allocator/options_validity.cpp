#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "allocator/options_keys.h"
#include "stats/history.h"

namespace cistern {
namespace {

constexpr std::size_t kLeastOversize = std::size_t{20} << 20;

template <class Value>
void require(bool valid, std::string_view field, const Value& value, std::string_view expected) {
  if (!valid) throw InvalidArgument(fmt::format("option {}: {}: expected {}", field, value, expected));
}

}  // namespace

void require_valid(const AllocatorOptions& options) {
  require(options.max_split_size_bytes >= kLeastOversize, "max_split_size_bytes", options.max_split_size_bytes,
          "at least 20 MiB");
  require(options.max_non_split_rounding_bytes >= kLeastOversize, "max_non_split_rounding_bytes",
          options.max_non_split_rounding_bytes, "at least 20 MiB");
  for (const std::uint32_t divisions : options.roundup_power2_divisions)
    require(divisions == 0 || std::has_single_bit(divisions), "roundup_power2_divisions", divisions,
            "0 or a power of two");
  require(options.garbage_collection_threshold >= 0.0 && options.garbage_collection_threshold < 1.0,
          "garbage_collection_threshold", options.garbage_collection_threshold, "a number from 0 to below 1");
  require(options.decay_ms <= kLongestDecayMs, "decay_ms", options.decay_ms, "at most a year of milliseconds");
  require(options.per_process_memory_fraction >= 0.0 && options.per_process_memory_fraction <= 1.0,
          "per_process_memory_fraction", options.per_process_memory_fraction, "a number from 0 to 1");
  require(std::has_single_bit(options.pinned_num_register_threads) && options.pinned_num_register_threads <= 128,
          "pinned_num_register_threads", options.pinned_num_register_threads, "a power of two, at most 128");
  require(!options.oom_dump.empty(), "oom_dump", options.oom_dump, "stderr, stdout, off or a file's path");
  require(options.summary_title == "cistern" || options.summary_title == "PyTorch", "summary_title",
          options.summary_title, "cistern or PyTorch");
  require_valid(options.history);
}

}  // namespace cistern
