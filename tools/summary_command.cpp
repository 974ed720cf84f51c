// cistern summary: the memory summary of a snapshot file.

#include <fmt/format.h>

#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "stats/json_writer.h"
#include "stats/summary.h"
#include "tools/command.h"
#include "tools/snapshot_input.h"
#include "tools/snapshot_parts.h"
#include "tools/snapshot_stats.h"
#include "tools/usage.h"

namespace cistern {
namespace {

constexpr std::string_view kTitle = "cistern";

struct SummaryUsage {
  std::string path;
  std::optional<std::uint64_t> device;
  bool abbreviated = false;
  bool json = false;

  void add_to(CLI::App& app) {
    add_snapshot(app, "SNAPSHOT", path);
    add_whole_number(app, "--device", device, "only of this device");
    app.add_flag("--abbreviated", abbreviated, "without the rows of the large and the small pool");
    app.add_flag("--json", json, "print one JSON object, with each device's statistics and where its memory is");
  }
};

// Those that have segments, and those whose statistics tell of any use.
std::set<int> devices_of(const Snapshot& snapshot, std::optional<std::uint64_t> only) {
  std::set<int> devices = devices_with_segments(snapshot);
  for (std::size_t i = 0; i < snapshot.device_stats.size(); ++i)
    if (has_activity(snapshot.device_stats[i])) devices.insert(static_cast<int>(i));
  if (only) std::erase_if(devices, [&](int device) { return static_cast<std::uint64_t>(device) != *only; });
  return devices;
}

// A device's statistics; nothing where the file has none, as PyTorch's.
const MemoryStats* recorded_stats(const Snapshot& snapshot, int device) {
  const auto index = static_cast<std::size_t>(device);
  return index < snapshot.device_stats.size() ? &snapshot.device_stats[index] : nullptr;
}

void note_what_is_missing(const std::string& name, std::string_view shown_as, std::ostream& err) {
  err << fmt::format(
      "cistern: {}: no device_stats: current figures are recomputed from the segments; peaks, totals, "
      "out-of-memory errors and retries are not in the file and shown as {}\n",
      name, shown_as);
}

void print_summaries(const SnapshotInput& input, const std::set<int>& devices, bool abbreviated, std::ostream& out) {
  for (const int device : devices) {
    if (const MemoryStats* stats = recorded_stats(input.snapshot, device)) {
      out << format_summary(*stats, device, abbreviated, kTitle);
      continue;
    }
    const MemoryStats stats = current_stats_of_segments(input.snapshot, device);
    out << without_history(format_summary(stats, device, abbreviated, kTitle));
  }
}

// Whether a walk over the segments tells the value of that flat key.
bool is_told_by_segments(std::string_view key) { return key.ends_with(".current") || key == "max_split_size"; }

void write_stats(JsonWriter& json, const Snapshot& snapshot, int device) {
  const MemoryStats* recorded = recorded_stats(snapshot, device);
  const MemoryStats stats = recorded != nullptr ? *recorded : current_stats_of_segments(snapshot, device);
  json.key("stats").begin_object();
  for (const auto& [key, value] : stats.flat()) {
    json.key(key);
    if (recorded != nullptr || is_told_by_segments(key))
      json.number(value);
    else
      json.null();
  }
  json.end_object();
}

void write_history(JsonWriter& json, const Snapshot& snapshot, int device) {
  const auto index = static_cast<std::size_t>(device);
  const std::size_t entries = index < snapshot.device_traces.size() ? snapshot.device_traces[index].size() : 0;
  json.key("history_entries").number(entries);
  for (const bool is_first : {true, false}) {
    json.key(is_first ? "history_first_us" : "history_last_us");
    if (entries == 0)
      json.null();
    else
      json.number((is_first ? snapshot.device_traces[index].front() : snapshot.device_traces[index].back()).time_us);
  }
}

void write_device(JsonWriter& json, const Snapshot& snapshot, int device) {
  json.begin_object();
  json.key("device").number(device);
  write_stats(json, snapshot, device);
  const SnapshotParts parts = parts_of(snapshot, static_cast<std::uint64_t>(device));
  json.key("memory").begin_object();
  for (const NamedPart& part : kSnapshotParts) json.key(part.name).number(parts.*part.value);
  json.end_object();
  write_history(json, snapshot, device);
  json.end_object();
}

void write_json(const SnapshotInput& input, const std::set<int>& devices, std::ostream& out) {
  JsonWriter json(out);
  json.begin_object();
  json.key("snapshot").string(input.name);
  json.key("form").string(to_string(input.form));
  json.key("options").string(input.snapshot.settings.text);
  json.key("devices").begin_array();
  for (const int device : devices) write_device(json, input.snapshot, device);
  json.end_array().end_object().finish();
}

void write_notes(const SnapshotInput& input, const std::set<int>& devices, const SummaryUsage& usage,
                 std::ostream& err) {
  if (devices.empty())
    err << fmt::format("cistern: {}: no device in it has memory or ever had any: nothing to summarise\n", input.name);
  for (const int device : devices)
    if (recorded_stats(input.snapshot, device) == nullptr)
      return note_what_is_missing(input.name, usage.json ? "null" : "'-'", err);
}

}  // namespace

int summary_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Prints the memory summary of each device in a snapshot file.", "cistern summary");
  SummaryUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  const SnapshotInput input = read_snapshot_input(usage.path, streams);
  const std::set<int> devices = devices_of(input.snapshot, usage.device);
  write_notes(input, devices, usage, streams.err);
  if (usage.json)
    write_json(input, devices, streams.out);
  else
    print_summaries(input, devices, usage.abbreviated, streams.out);
  return kExitSuccess;
}

}  // namespace cistern
