#pragma once

// Reads a subcommand's arguments: CLI11's grammar, our manners (one line, status 2).

#include <CLI/CLI.hpp>

#include "tools/command.h"

namespace cistern {

// Parses `arguments` into what `app` is bound to. False when help was asked for and printed.
// Throws InvalidArgument, naming the subcommand and the argument, for bad usage.
[[nodiscard]] bool parse_usage(CLI::App& app, const Arguments& arguments, const CommandStreams& streams);

}  // namespace cistern
