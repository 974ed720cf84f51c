// cistern replay: what an allocator does with traces, as figures or as statistics over time.

#include <cistern/error.h>
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "stats/sizes.h"
#include "tools/byte_count.h"
#include "tools/checkpoint_json.h"
#include "tools/command.h"
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
  std::string capacity;
  std::optional<double> memory_fraction;
  std::optional<std::uint64_t> event_lag;
  std::optional<std::size_t> steps;
  double perturb = 0;
  std::uint64_t seed = 0;
  bool json = false;
  std::optional<std::size_t> checkpoints;

  void add_to(CLI::App& app) {
    app.add_option("TRACE", traces, "allocation traces, plain or gzip'd")->required();
    allocator.add_to(app);
    app.add_option("--capacity", capacity, "memory of the simulated device; by default 80GiB")
        ->type_name("BYTES|40GiB");
    app.add_option("--memory-fraction", memory_fraction, "limit the allocator to this share of the device's memory")
        ->type_name("F");
    app.add_option("--event-lag", event_lag, "the simulated device completes an event N operations after its record")
        ->type_name("N");
    app.add_option("--steps", steps, "replay only the first N steps")->type_name("N")->check(CLI::PositiveNumber);
    app.add_option("--perturb", perturb,
                   "make this share of the sizes smaller by a sixteenth in the second and third pass, "
                   "drawn anew for each")
        ->type_name("SHARE")
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--seed", seed, "chooses what --perturb changes; by default 0")->type_name("N");
    app.add_flag("--json", json, "print one JSON object a trace");
    app.add_option("--stats-checkpoints", checkpoints,
                   "print instead, for one trace, the statistics after every operations / N and after the last")
        ->type_name("N")
        ->check(CLI::PositiveNumber);
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
  ReplaySettings settings;

  std::unique_ptr<ReplayDevice> make_device() const {
    return device.is_simulated ? make_simulated_replay_device(device.simulated) : make_process_replay_device();
  }
};

DeviceChoice chosen_device(const ReplayUsage& usage, std::optional<std::uint64_t> capacity) {
  DeviceChoice choice = choose_device();
  if (!choice.is_simulated && (capacity || usage.event_lag))
    throw InvalidArgument(fmt::format("{} is a setting of the simulated device; expected CISTERN_DEVICE=simulated",
                                      usage.event_lag ? "--event-lag" : "--capacity"));
  if (capacity) choice.simulated.capacity_bytes = *capacity;
  if (usage.event_lag) choice.simulated.event_lag_ticks = *usage.event_lag;
  return choice;
}

double ratio_over_live(std::uint64_t bytes, const ReplayScript& script) {
  return static_cast<double>(bytes) / static_cast<double>(script.peak_live_bytes);
}

nlohmann::ordered_json to_json(const NamedTrace& trace, const ReplayScript& script, const ReplayRun& run,
                               const std::string& device, const ReplayFigures& figures) {
  nlohmann::ordered_json calls = nlohmann::ordered_json::object();
  for (const DriverEntryId entry : kReportedCalls)
    calls[kDriverEntryNames[static_cast<std::size_t>(entry)]] = figures.driver.of(entry);
  return {
      {"trace", trace.name},
      {"policy", to_string(run.settings.options.policy)},
      {"config", run.usage.allocator.config},
      {"device", device},
      {"ops", script.ops},
      {"steps", script.steps},
      {"peak_live_bytes", script.peak_live_bytes},
      {"peak_reserved_bytes", figures.peak_reserved_bytes},
      // Not a number, and so null, where nothing was ever live.
      {"peak_reserved_over_live", ratio_over_live(figures.peak_reserved_bytes, script)},
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
  std::size_t name_width = 0;
  for (const NamedTrace& trace : traces) name_width = std::max(name_width, trace.name.size());
  return {out,
          {{"trace", name_width},
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

std::vector<std::string> to_row(const NamedTrace& trace, const ReplayScript& script, const ReplayFigures& figures) {
  return {
      trace.name,
      fmt::to_string(script.ops),
      fmt::to_string(script.steps),
      format_size(script.peak_live_bytes),
      format_size(figures.peak_reserved_bytes),
      script.peak_live_bytes == 0 ? "-" : fmt::format("{:.3f}", ratio_over_live(figures.peak_reserved_bytes, script)),
      fmt::to_string(figures.driver.memory_management_calls()),
      fmt::to_string(figures.repeat_driver_calls),
      fmt::to_string(figures.driver.host_synchronizations),
      fmt::format("{:.3f}", figures.driver.modelled_ms),
      fmt::format("{:.1f}", figures.ns_per_op),
      fmt::to_string(figures.retries),
      fmt::to_string(figures.ooms)};
}

int print_figures(const ReplayRun& run, const std::vector<NamedTrace>& traces, const CommandStreams& streams) {
  const Table table = make_table(streams.out, traces);
  Progress progress(streams.err, streams.show_progress);
  std::int64_t ooms = 0;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    progress.start(traces[i].name, i, traces.size());
    const ReplayScript script = make_script(traces[i].trace, run.usage.steps);
    const auto device = run.make_device();
    const ReplayFigures figures = measure_replay(
        script, *device, run.settings, [&](std::string_view phase, double share) { progress.update(phase, share); });
    progress.clear();
    ooms += figures.ooms;
    if (run.usage.json) {
      streams.out << to_json(traces[i], script, run, device->name(), figures).dump() << std::endl;
      continue;
    }
    if (i == 0) {
      streams.out << fmt::format("device {}, {}; policy {}; config '{}'\n", device->name(),
                                 format_size(device->capacity_bytes()), to_string(run.settings.options.policy),
                                 run.usage.allocator.config);
      table.print_header();
    }
    table.print_row(to_row(traces[i], script, figures));
  }
  return ooms > 0 ? kExitOutOfMemory : kExitSuccess;
}

int print_checkpoints(const ReplayRun& run, const NamedTrace& trace, const CommandStreams& streams) {
  const ReplayScript script = make_script(trace.trace, run.usage.steps);
  const auto device = run.make_device();
  const std::int64_t ooms = replay_checkpoints(script, *device, run.settings, *run.usage.checkpoints,
                                               [&](std::size_t ops, bool after_empty_cache, const MemoryStats& stats) {
                                                 if (after_empty_cache) streams.out << "{\"empty_cache\": true}\n";
                                                 streams.out << checkpoint_json(ops, stats).dump() << '\n';
                                               });
  return ooms > 0 ? kExitOutOfMemory : kExitSuccess;
}

}  // namespace

int replay_command(const Arguments& arguments, const CommandStreams& streams) {
  CLI::App app("Replays allocation traces and measures what the allocator does with them.", "cistern replay");
  ReplayUsage usage;
  usage.add_to(app);
  if (!parse_usage(app, arguments, streams)) return kExitSuccess;
  if (usage.checkpoints && usage.traces.size() != 1)
    throw InvalidArgument(
        fmt::format("cistern replay: --stats-checkpoints with {} traces; expected one", usage.traces.size()));

  std::optional<std::uint64_t> capacity;
  if (!usage.capacity.empty()) capacity = parse_byte_count(usage.capacity, "cistern replay: --capacity");
  const AllocatorOptions options = usage.allocator.parse(usage.memory_fraction);
  const std::vector<NamedTrace> traces = read_traces(usage.traces);
  // Only now, when nothing can be wrong with the usage: both may have something to say.
  const ReplayRun run{
      usage, chosen_device(usage, capacity), {options, usage.memory_fraction, usage.perturb, usage.seed}};
  warn_of_options_without_effect(options, streams.err);
  return usage.checkpoints ? print_checkpoints(run, traces.front(), streams) : print_figures(run, traces, streams);
}

}  // namespace cistern
