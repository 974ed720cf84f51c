#pragma once

// What `replay` and `capacity` have in common: traces, the policy and the allocator's options.

#include <cistern/options.h>

#include <CLI/CLI.hpp>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/table.h"
#include "tools/trace.h"

namespace cistern {

struct AllocatorArguments {
  std::string policy;  // empty: the default
  std::string config;

  // Declares --policy and --config.
  void add_to(CLI::App& app);
  // Reads them as one text. Summaries at out of memory are off unless the text asks for them: a
  // replay counts errors and goes on. `memory_fraction`: what will be set by call before the first
  // allocation, in 0..1. Throws as AllocatorOptions::parse does, and InvalidArgument naming both
  // for a --policy or a --memory-fraction that --config contradicts.
  [[nodiscard]] AllocatorOptions parse(std::optional<double> memory_fraction = {}) const;
  // Throws as AllocatorOptions::parse does, and InvalidArgument if --config chooses a policy, which `flag` does.
  void require_no_policy(std::string_view flag) const;
};
// `flag` makes standard output JSON. Throws InvalidArgument if summaries would go there too.
void require_json_alone_on_output(const AllocatorOptions& options, std::string_view flag);
// Says on `err`, a line each, which of the options that were given have no effect, and why.
void warn_of_options_without_effect(const AllocatorOptions& options, std::ostream& err);

struct NamedTrace {
  std::string name;  // the file's base name
  Trace trace;
};
// Reads them all before anything is replayed: a bad one among them stops the command.
[[nodiscard]] std::vector<NamedTrace> read_traces(const std::vector<std::string>& paths);
// The first column of a table with a row a trace.
[[nodiscard]] TableColumn trace_column(const std::vector<NamedTrace>& traces);

}  // namespace cistern
