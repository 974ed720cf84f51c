// cistern summary: the memory summary of a snapshot file.

#include <fmt/format.h>

#include <ostream>

#include "stats/summary.h"
#include "tools/command.h"
#include "tools/snapshot_reader.h"
#include "tools/snapshot_stats.h"
#include "tools/usage.h"

namespace cistern {
namespace {

constexpr std::string_view kTitle = "cistern";

void print_recorded(const Snapshot& snapshot, bool abbreviated, std::ostream& out) {
  const std::set<int> with_segments = devices_with_segments(snapshot);
  for (std::size_t i = 0; i < snapshot.device_stats.size(); ++i) {
    const int device = static_cast<int>(i);
    if (has_activity(snapshot.device_stats[i]) || with_segments.contains(device))
      out << format_summary(snapshot.device_stats[i], device, abbreviated, kTitle);
  }
}

// For a file whose statistics are not in it.
void print_recomputed(const Snapshot& snapshot, bool abbreviated, const std::string& path,
                      const CommandStreams& streams) {
  streams.err << fmt::format(
      "cistern: {}: no device_stats: current figures are recomputed from the segments; peaks, totals, "
      "out-of-memory errors and retries are not in the file and shown as '-'\n",
      path);
  for (const int device : devices_with_segments(snapshot))
    streams.out << without_history(
        format_summary(current_stats_of_segments(snapshot, device), device, abbreviated, kTitle));
}

}  // namespace

int summary_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Prints the memory summary of each device in a snapshot file.", "cistern summary");
  std::string path;
  bool abbreviated = false;
  app.add_option("SNAPSHOT", path, "a snapshot as JSON, cistern's or PyTorch's")->required();
  app.add_flag("--abbreviated", abbreviated, "without the rows of the large and the small pool");
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;

  const Snapshot snapshot = read_snapshot(path);
  if (snapshot.device_stats.empty())
    print_recomputed(snapshot, abbreviated, path, streams);
  else
    print_recorded(snapshot, abbreviated, streams.out);
  return kExitSuccess;
}

}  // namespace cistern
