// cistern summary: the memory summary of a snapshot file.

#include <fmt/format.h>

#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "stats/summary.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/snapshot_reader.h"
#include "tools/snapshot_stats.h"
#include "tools/usage.h"

namespace cistern {
namespace {

constexpr std::string_view kTitle = "cistern";

// Those that have segments, and those whose statistics tell of any use.
std::set<int> devices_of(const Snapshot& snapshot) {
  std::set<int> devices = devices_with_segments(snapshot);
  for (std::size_t i = 0; i < snapshot.device_stats.size(); ++i)
    if (has_activity(snapshot.device_stats[i])) devices.insert(static_cast<int>(i));
  return devices;
}

void note_what_is_missing(const std::string& path, std::ostream& err) {
  err << fmt::format(
      "cistern: {}: no device_stats: current figures are recomputed from the segments; peaks, totals, "
      "out-of-memory errors and retries are not in the file and shown as '-'\n",
      path);
}

void print_summaries(const Snapshot& snapshot, bool abbreviated, const std::string& path,
                     const CommandStreams& streams) {
  const std::set<int> devices = devices_of(snapshot);
  if (devices.empty())
    streams.err << fmt::format("cistern: {}: no device in it has memory or ever had any: nothing to summarise\n", path);
  bool noted = false;
  for (const int device : devices) {
    if (static_cast<std::size_t>(device) < snapshot.device_stats.size()) {
      const MemoryStats& stats = snapshot.device_stats[static_cast<std::size_t>(device)];
      streams.out << format_summary(stats, device, abbreviated, kTitle);
      continue;
    }
    if (!std::exchange(noted, true)) note_what_is_missing(path, streams.err);
    const MemoryStats stats = current_stats_of_segments(snapshot, device);
    streams.out << without_history(format_summary(stats, device, abbreviated, kTitle));
  }
}

}  // namespace

int summary_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Prints the memory summary of each device in a snapshot file.", "cistern summary");
  std::string path;
  bool abbreviated = false;
  app.add_option("SNAPSHOT", path, "a snapshot: cistern's JSON, PyTorch's JSON or a pickle; - for standard input")
      ->required();
  app.add_flag("--abbreviated", abbreviated, "without the rows of the large and the small pool");
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  Progress progress(streams.err, streams.show_progress);
  progress.start(path, 0, 1);
  const Snapshot snapshot = read_snapshot(path, [&progress](double share) { progress.update("reading", share); });
  progress.clear();
  print_summaries(snapshot, abbreviated, path, streams);
  return kExitSuccess;
}

}  // namespace cistern
