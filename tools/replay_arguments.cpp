#include "tools/replay_arguments.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "allocator/quoted_text.h"

namespace cistern {

void AllocatorArguments::add_to(CLI::App& app) {
  app.add_option("--policy", policy, "classic, expandable, paged, async or direct; by default paged")
      ->type_name("NAME");
  app.add_option("--config", config, "the allocator's options: KEY:VALUE,... in PyTorch's grammar (docs/options.md)")
      ->type_name("KEY:VALUE,...");
}

namespace {

// What stays as in `base` unless the text says otherwise must be as in `base` afterwards: so
// a contradiction is seen however the text spells it.
void refuse_contradictions(const AllocatorOptions& parsed, const AllocatorOptions& base, const std::string& policy,
                           std::string_view config) {
  if (!policy.empty() && parsed.policy != base.policy)
    throw InvalidArgument(fmt::format("--policy {} with --config {}, which chooses {}: expected one policy in both",
                                      quoted_text(policy), quoted_text(config), to_string(parsed.policy)));
  if (base.fraction_given && parsed.per_process_memory_fraction != base.per_process_memory_fraction)
    throw InvalidArgument(fmt::format(
        "--memory-fraction {} with --config {}, which sets per_process_memory_fraction to {}: expected one fraction in "
        "both",
        base.per_process_memory_fraction, quoted_text(config), parsed.per_process_memory_fraction));
}

}  // namespace

AllocatorOptions AllocatorArguments::parse(std::optional<double> memory_fraction) const {
  // More options would come in with the name, past the checks of --config.
  if (policy.find(',') != std::string::npos)
    throw InvalidArgument(fmt::format("--policy {}: expected the name of one policy", quoted_text(policy)));
  AllocatorOptions base;
  base.oom_dump = "off";
  if (memory_fraction) {
    // Options that act only under a limit have one.
    base.per_process_memory_fraction = *memory_fraction;
    base.fraction_given = true;
  }
  if (!policy.empty()) base.policy = AllocatorOptions::parse(fmt::format("policy:{}", policy), base).policy;
  std::string text = config;
  if (!policy.empty()) text = fmt::format("policy:{}{}{}", policy, config.empty() ? "" : ",", config);
  AllocatorOptions parsed = AllocatorOptions::parse(text, base);
  refuse_contradictions(parsed, base, policy, config);
  return parsed;
}

void AllocatorArguments::require_no_policy(std::string_view flag) const {
  for (const Policy of : {Policy::classic, Policy::paged}) {
    AllocatorOptions base;
    base.policy = of;
    const Policy chosen = AllocatorOptions::parse(config, base).policy;
    if (chosen != of)
      throw InvalidArgument(fmt::format("{} with --config {}, which chooses {}: expected none there", flag,
                                        quoted_text(config), to_string(chosen)));
  }
}

void require_json_alone_on_output(const AllocatorOptions& options, std::string_view flag) {
  if (options.oom_dump == "stdout")
    throw InvalidArgument(fmt::format(
        "{} with oom_dump:stdout in --config: expected stderr, off or a file, as JSON alone is printed there", flag));
}

void warn_of_options_without_effect(const AllocatorOptions& options, std::ostream& err) {
  for (const std::string& line : options.without_effect) err << "cistern: option without effect: " << line << '\n';
}

std::vector<NamedTrace> read_traces(const std::vector<std::string>& paths) {
  std::vector<NamedTrace> traces;
  traces.reserve(paths.size());
  for (const std::string& path : paths)
    traces.push_back({std::filesystem::path(path).filename().string(), read_trace(path)});
  return traces;
}

TableColumn trace_column(const std::vector<NamedTrace>& traces) {
  std::size_t width = 0;
  for (const NamedTrace& trace : traces) width = std::max(width, trace.name.size());
  return {"trace", width};
}

}  // namespace cistern
