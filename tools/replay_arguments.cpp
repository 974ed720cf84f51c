#include "tools/replay_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

namespace cistern {

void AllocatorArguments::add_to(CLI::App& app) {
  app.add_option("--policy", policy,
                 "classic, expandable, paged, async or direct; by default classic, and paged once it is built")
      ->type_name("NAME");
  app.add_option("--config", config, "the allocator's options: KEY:VALUE,... in PyTorch's grammar (docs/options.md)")
      ->type_name("KEY:VALUE,...");
}

AllocatorOptions AllocatorArguments::parse(std::optional<double> memory_fraction) const {
  AllocatorOptions base;
  base.oom_dump = "off";
  if (memory_fraction) {
    // Options that act only under a limit have one; its range is checked where it is set.
    base.per_process_memory_fraction = std::clamp(*memory_fraction, 0.0, 1.0);
    base.fraction_given = true;
  }
  std::string text = config;
  if (!policy.empty()) text = fmt::format("policy:{}{}{}", policy, config.empty() ? "" : ",", config);
  return AllocatorOptions::parse(text, base);
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

}  // namespace cistern
