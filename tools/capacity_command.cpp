// cistern capacity: the least device memory with which traces complete.

#include <fmt/format.h>

#include <optional>
#include <ostream>

#include "stats/sizes.h"
#include "tools/capacity.h"
#include "tools/command.h"
#include "tools/json_line.h"
#include "tools/progress.h"
#include "tools/replay_arguments.h"
#include "tools/table.h"
#include "tools/usage.h"

namespace cistern {
namespace {

struct CapacityUsage {
  std::vector<std::string> traces;
  AllocatorArguments allocator;
  bool json = false;

  void add_to(CLI::App& app) {
    app.add_option("TRACE", traces, "allocation traces, plain or gzip'd")->required();
    allocator.add_to(app);
    app.add_flag("--json", json, "print one JSON object a trace");
    app.footer(
        "The search is a bisection in steps of 2 MiB over simulated devices, from the trace's peak of live\n"
        "bytes; the result completes, and 2 MiB less does not. Exit status 1: no capacity was enough.");
  }
};

using Capacity = std::optional<std::uint64_t>;

nlohmann::ordered_json to_json(const NamedTrace& trace, const ReplayScript& script, const AllocatorOptions& options,
                               const std::string& config, const Capacity& capacity) {
  nlohmann::ordered_json object = {{"trace", trace.name}, {"policy", to_string(options.policy)}, {"config", config}};
  object["min_capacity_bytes"] = nullptr;
  if (capacity) object["min_capacity_bytes"] = *capacity;
  object["peak_live_bytes"] = script.peak_live_bytes;
  object["min_capacity_over_live"] = nullptr;
  if (capacity && script.peak_live_bytes > 0) object["min_capacity_over_live"] = script.ratio_over_live(*capacity);
  return object;
}

Table make_table(std::ostream& out, const std::vector<NamedTrace>& traces) {
  return {out,
          {trace_column(traces), {"ops", 9}, {"peak live", 10}, {"least capacity", 14}, {"bytes", 14}, {"ratio", 6}}};
}

std::vector<std::string> to_row(const NamedTrace& trace, const ReplayScript& script, const Capacity& capacity) {
  const bool has_ratio = capacity && script.peak_live_bytes > 0;
  return {trace.name,
          fmt::to_string(script.ops),
          std::string(format_size(script.peak_live_bytes)),
          capacity ? std::string(format_size(*capacity)) : "none",
          capacity ? fmt::to_string(*capacity) : "-",
          has_ratio ? fmt::format("{:.3f}", script.ratio_over_live(*capacity)) : "-"};
}

}  // namespace

int capacity_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Finds the least device capacity at which allocation traces complete.", "cistern capacity");
  CapacityUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  const AllocatorOptions options = usage.allocator.parse();
  if (usage.json) require_json_alone_on_output(options, "--json");
  const std::vector<NamedTrace> traces = read_traces(usage.traces);
  warn_of_options_without_effect(options, streams.err);

  const Table table = make_table(streams.out, traces);
  if (!usage.json) {
    streams.out << fmt::format("policy {}; config '{}'\n", to_string(options.policy), usage.allocator.config);
    table.print_header();
  }
  Progress progress(streams.err, streams.show_progress);
  bool all_found = true;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    progress.start(traces[i].name, i, traces.size());
    const ReplayScript script = make_script(traces[i].trace);
    const Capacity capacity = find_least_capacity(script, options, [&](std::uint64_t bytes, double share) {
      progress.update(fmt::format("trying {}", format_size(bytes)), share);
    });
    progress.clear();
    all_found = all_found && capacity.has_value();
    if (usage.json) {
      print_json_line(streams.out, to_json(traces[i], script, options, usage.allocator.config, capacity));
      streams.out.flush();
    } else {
      table.print_row(to_row(traces[i], script, capacity));
    }
  }
  return all_found ? kExitSuccess : kExitOutOfMemory;
}

}  // namespace cistern
