// cistern replay: what an allocator does with traces, as figures or as statistics over time.

#include <cistern/error.h>
#include <fmt/format.h>

#include <array>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "stats/sizes.h"
#include "tools/checkpoint_json.h"
#include "tools/command.h"
#include "tools/json_line.h"
#include "tools/progress.h"
#include "tools/replay.h"
#include "tools/replay_arguments.h"
#include "tools/table.h"
#include "tools/usage.h"

namespace cistern {
namespace {

struct ReplayUsage {
  std::vector<std::string> traces;
  AllocatorArguments allocator;
  std::optional<std::uint64_t> capacity;
  std::optional<double> memory_fraction;
  std::optional<std::uint64_t> event_lag;
  std::optional<std::uint64_t> steps;
  std::optional<double> perturb;
  std::optional<std::uint64_t> seed;
  bool compare = false;
  bool json = false;
  std::optional<std::uint64_t> checkpoints;

  void add_to(CLI::App& app) {
    app.add_option("TRACE", traces, "allocation traces, plain or gzip'd")->required();
    allocator.add_to(app);
    add_byte_size(app, "--capacity", capacity, "memory of the simulated device; by default 80GiB");
    add_share(app, "--memory-fraction", memory_fraction, "limit the allocator to this share of the device's memory");
    add_whole_number(app, "--event-lag", event_lag,
                     "the simulated device completes an event N operations after its record");
    add_whole_number(app, "--steps", steps, "replay only the first N steps", 1);
    add_share(app, "--perturb", perturb,
              "make this share of the sizes smaller by a sixteenth in the second and third pass, "
              "drawn anew for each");
    add_whole_number(app, "--seed", seed, "chooses what --perturb changes; by default 0");
    app.add_flag("--compare", compare,
                 "replay each trace under classic, expandable, paged, async and direct, side by side");
    app.add_flag("--json", json, "print one JSON object a trace, with --compare one a trace and policy");
    add_whole_number(app, "--stats-checkpoints", checkpoints,
                     "print instead, for one trace, the statistics after every operations / N and after the last", 1);
    app.footer(
        "Figures are of the first pass, but for repeat_driver_calls (the third, with the cache kept) and\n"
        "ns_per_op (the best of later passes, over a simulated device). Exit status 1: memory ran out.");
  }
};

// The driver calls that the figures name.
constexpr auto kReportedCalls = [] {
  using enum DriverEntryId;
  return std::array{mem_alloc,          mem_free,       mem_create,  mem_release,       mem_address_reserve,
                    mem_address_free,   mem_map,        mem_unmap,   mem_set_access,    event_create,
                    event_destroy,      event_record,   event_query, event_synchronize, stream_wait_event,
                    stream_synchronize, ctx_synchronize};
}();

// What stays the same for all traces of one command.
struct ReplayRun {
  const ReplayUsage& usage;
  DeviceChoice device;
  std::vector<ReplaySettings> settings;  // one a policy

  std::unique_ptr<ReplayDevice> make_device() const {
    return device.is_simulated ? make_simulated_replay_device(device.simulated) : make_process_replay_device();
  }
};

DeviceChoice chosen_device(const ReplayUsage& usage) {
  DeviceChoice choice = choose_device();
  if (!choice.is_simulated && (usage.capacity || usage.event_lag))
    throw InvalidArgument(fmt::format("{} is a setting of the simulated device; expected CISTERN_DEVICE=simulated",
                                      usage.event_lag ? "--event-lag" : "--capacity"));
  if (usage.capacity) choice.simulated.capacity_bytes = *usage.capacity;
  if (usage.event_lag) choice.simulated.event_lag_ticks = *usage.event_lag;
  return choice;
}

nlohmann::ordered_json to_json(const NamedTrace& trace, const ReplayScript& script, const ReplayRun& run, Policy policy,
                               const std::string& device, const ReplayFigures& figures) {
  nlohmann::ordered_json calls = nlohmann::ordered_json::object();
  for (const DriverEntryId entry : kReportedCalls)
    calls[kDriverEntryNames[static_cast<std::size_t>(entry)]] = figures.driver.of(entry);
  return {
      {"trace", trace.name},
      {"policy", to_string(policy)},
      {"config", run.usage.allocator.config},
      {"device", device},
      {"ops", script.ops},
      {"steps", script.steps},
      {"peak_live_bytes", script.peak_live_bytes},
      {"peak_reserved_bytes", figures.peak_reserved_bytes},
      // Not a number, and so null, where nothing was ever live.
      {"peak_reserved_over_live", script.ratio_over_live(figures.peak_reserved_bytes)},
      {"driver_calls", calls},
      {"repeat_driver_calls", figures.repeat_driver_calls},
      {"host_synchronizations", figures.driver.host_synchronizations},
      {"modelled_driver_ms", figures.driver.modelled_ms},
      {"ns_per_op", figures.ns_per_op},
      {"retries", figures.retries},
      {"ooms", figures.ooms},
  };
}

Table make_table(std::ostream& out, const std::vector<NamedTrace>& traces) {
  return {out,
          {trace_column(traces),
           {"policy", 10},
           {"ops", 9},
           {"steps", 6},
           {"peak live", 10},
           {"peak reserved", 10},
           {"ratio", 6},
           {"memory calls", 8},
           {"repeat calls", 8},
           {"host syncs", 6},
           {"driver ms", 10},
           {"ns/op", 8},
           {"retries", 7},
           {"ooms", 6}}};
}

std::vector<std::string> to_row(const NamedTrace& trace, const ReplayScript& script, Policy policy,
                                const ReplayFigures& figures) {
  return {
      trace.name,
      to_string(policy),
      fmt::to_string(script.ops),
      fmt::to_string(script.steps),
      std::string(format_size(script.peak_live_bytes)),
      std::string(format_size(figures.peak_reserved_bytes)),
      script.peak_live_bytes == 0 ? "-" : fmt::format("{:.3f}", script.ratio_over_live(figures.peak_reserved_bytes)),
      fmt::to_string(figures.driver.memory_management_calls()),
      fmt::to_string(figures.repeat_driver_calls),
      fmt::to_string(figures.driver.host_synchronizations),
      fmt::format("{:.3f}", figures.driver.modelled_ms),
      fmt::format("{:.1f}", figures.ns_per_op),
      fmt::to_string(figures.retries),
      fmt::to_string(figures.ooms)};
}

void print_title(const ReplayRun& run, const Table& table, const ReplayDevice& device, std::ostream& out) {
  std::string policies;
  for (const ReplaySettings& settings : run.settings)
    policies += fmt::format("{}{}", policies.empty() ? "" : ", ", to_string(settings.options.policy));
  out << fmt::format("device {}, {}; policy {}; config '{}'\n", device.name(), format_size(device.capacity_bytes()),
                     policies, run.usage.allocator.config);
  table.print_header();
}

int print_figures(const ReplayRun& run, const std::vector<NamedTrace>& traces, const CommandStreams& streams) {
  const Table table = make_table(streams.out, traces);
  Progress progress(streams.err, streams.show_progress);
  std::int64_t ooms = 0;
  bool is_first = true;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    progress.start(traces[i].name, i, traces.size());
    const ReplayScript script = make_script(traces[i].trace, run.usage.steps);
    for (const ReplaySettings& settings : run.settings) {
      const Policy policy = settings.options.policy;
      const auto device = run.make_device();
      const ReplayFigures figures = measure_replay(
          script, *device, settings, [&](std::string_view phase, double share) { progress.update(phase, share); });
      progress.clear();
      ooms += figures.ooms;
      if (run.usage.json) {
        print_json_line(streams.out, to_json(traces[i], script, run, policy, device->name(), figures));
        streams.out.flush();
        continue;
      }
      if (std::exchange(is_first, false)) print_title(run, table, *device, streams.out);
      table.print_row(to_row(traces[i], script, policy, figures));
    }
  }
  return ooms > 0 ? kExitOutOfMemory : kExitSuccess;
}

int print_checkpoints(const ReplayRun& run, const NamedTrace& trace, const CommandStreams& streams) {
  const ReplayScript script = make_script(trace.trace, run.usage.steps);
  const auto device = run.make_device();
  Progress progress(streams.err, streams.show_progress);
  progress.start(trace.name, 0, 1);
  const std::int64_t ooms = replay_checkpoints(
      script, *device, run.settings.front(), *run.usage.checkpoints,
      [&](std::size_t ops, bool after_empty_cache, const MemoryStats& stats) {
        progress.clear();
        if (after_empty_cache) print_json_line(streams.out, {{"empty_cache", true}});
        print_json_line(streams.out, checkpoint_json(ops, stats));
      },
      [&](std::string_view phase, double share) { progress.update(phase, share); });
  return ooms > 0 ? kExitOutOfMemory : kExitSuccess;
}

// What the arguments say together, each being right by itself: the options of each policy that is to be replayed.
std::vector<AllocatorOptions> checked_options(const ReplayUsage& usage) {
  if (usage.checkpoints && usage.traces.size() != 1)
    throw InvalidArgument(fmt::format("--stats-checkpoints with {} traces; expected one", usage.traces.size()));
  std::vector<AllocatorOptions> all;
  if (usage.compare) {
    if (usage.checkpoints) throw InvalidArgument("--compare with --stats-checkpoints; expected one of them");
    if (!usage.allocator.policy.empty())
      throw InvalidArgument(fmt::format("--compare with --policy {}; expected one of them", usage.allocator.policy));
    usage.allocator.require_no_policy("--compare");
    for (const char* policy : {"classic", "expandable", "paged", "async", "direct"}) {
      AllocatorArguments arguments = usage.allocator;
      arguments.policy = policy;
      all.push_back(arguments.parse(usage.memory_fraction));
    }
  } else {
    all.push_back(usage.allocator.parse(usage.memory_fraction));
  }
  if (usage.checkpoints) require_json_alone_on_output(all.front(), "--stats-checkpoints");
  if (usage.json) require_json_alone_on_output(all.front(), "--json");
  return all;
}

}  // namespace

int replay_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Replays allocation traces and measures what the allocator does with them.", "cistern replay");
  ReplayUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  const std::vector<AllocatorOptions> options = checked_options(usage);
  const std::vector<NamedTrace> traces = read_traces(usage.traces);
  // Only now, when nothing can be wrong with the usage: both may have something to say.
  ReplayRun run{usage, chosen_device(usage), {}};
  for (const AllocatorOptions& one : options)
    run.settings.push_back({one, usage.memory_fraction, usage.perturb.value_or(0), usage.seed.value_or(0)});
  warn_of_options_without_effect(options.front(), streams.err);
  return usage.checkpoints ? print_checkpoints(run, traces.front(), streams) : print_figures(run, traces, streams);
}

}  // namespace cistern
