#include "tools/replay_arguments.h"

#include <fmt/format.h>

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

AllocatorOptions AllocatorArguments::parse(std::ostream& err) const {
  AllocatorOptions base;
  base.oom_dump = "off";
  std::string text = config;
  if (!policy.empty()) text = fmt::format("policy:{}{}{}", policy, config.empty() ? "" : ",", config);
  AllocatorOptions options = AllocatorOptions::parse(text, base);
  for (const std::string& line : options.without_effect) err << "cistern: option without effect: " << line << '\n';
  return options;
}

std::vector<NamedTrace> read_traces(const std::vector<std::string>& paths) {
  std::vector<NamedTrace> traces;
  traces.reserve(paths.size());
  for (const std::string& path : paths)
    traces.push_back({std::filesystem::path(path).filename().string(), read_trace(path)});
  return traces;
}

}  // namespace cistern
