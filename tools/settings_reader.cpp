#include "tools/settings_reader.h"

#include <charconv>

#include "stats/fields.h"

namespace cistern {
namespace {

std::map<std::int64_t, std::int64_t> read_divisions(const DocumentPlace& place) {
  std::map<std::int64_t, std::int64_t> buckets;
  for (const Member member : place.document().members(place.object().value())) {
    const std::string_view name = place.document().text(member.name);
    const DocumentPlace bucket = place.inside(name, member.value);
    std::int64_t mebibytes = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), mebibytes);
    if (error != std::errc{} || stop != name.data() + name.size() || mebibytes <= 0)
      bucket.fail("a number of MiB as its name");
    buckets[mebibytes] = bucket.integer(0);
  }
  return buckets;
}

}  // namespace

AllocatorSettings read_settings(const DocumentPlace& place) {
  static_cast<void>(place.object());
  AllocatorSettings settings;
  const auto read = [&place](std::string_view name, auto& field, auto&& convert) {
    if (place.has(name)) field = convert(place.member(name));
  };
  const auto as_integer = [](const DocumentPlace& at) { return at.integer(); };
  const auto as_limit = [](const DocumentPlace& at) { return at.integer(-1); };
  const auto as_boolean = [](const DocumentPlace& at) { return at.boolean(); };
  const auto as_text = [](const DocumentPlace& at) { return std::string(at.text()); };
  read("PYTORCH_CUDA_ALLOC_CONF", settings.text, as_text);
  read("max_split_size", settings.max_split_size, as_limit);
  read("garbage_collection_threshold", settings.garbage_collection_threshold,
       [](const DocumentPlace& at) { return at.number(); });
  read("expandable_segments", settings.expandable_segments, as_boolean);
  read("pinned_num_register_threads", settings.pinned_num_register_threads, as_integer);
  read("release_lock_on_cudamalloc", settings.release_lock_on_cudamalloc, as_boolean);
  read("pinned_use_cuda_host_register", settings.pinned_use_cuda_host_register, as_boolean);
  read("graph_capture_record_stream_reuse", settings.graph_capture_record_stream_reuse, as_boolean);
  read("roundup_power2_divisions", settings.roundup_power2_divisions, read_divisions);
  read("trace_alloc_overflowed", settings.trace_alloc_overflowed, as_boolean);
  read("trace_alloc_max_entries", settings.trace_alloc_max_entries, as_limit);
  read("policy", settings.policy, as_text);
  read("pytorch_rules", settings.pytorch_rules, as_text);
  read("max_non_split_rounding", settings.max_non_split_rounding, as_limit);
  return settings;
}

MemoryStats read_device_stats(const DocumentPlace& place) {
  static_cast<void>(place.object());
  MemoryStats stats;
  visit_values(stats, [&](const std::string& key, std::int64_t& value) { value = place.member(key).integer(); });
  return stats;
}

}  // namespace cistern
