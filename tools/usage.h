#pragma once

// Reads a subcommand's arguments: CLI11's grammar, our manners (one line, status 2) and our
// numbers. CLI11's own take "-1" and "nan" as they come, and a value that is too large or
// empty as one that is not.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/command.h"

namespace cistern {

// Parses `arguments` into what `app` is bound to. False when help was asked for and printed.
// Throws InvalidArgument, naming the subcommand and the argument, for bad usage.
[[nodiscard]] bool parse_usage(CLI::App& app, const Arguments& arguments, const CommandStreams& streams);

// Declare an option of `app` that sets `value`, which must outlive the parsing. It throws
// InvalidArgument naming the subcommand, the option, its text and what was expected.

// A whole number of at least `least`.
CLI::Option* add_whole_number(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                              const std::string& description, std::uint64_t least = 0);
// A number from 0 to 1.
CLI::Option* add_share(CLI::App& app, const std::string& name, std::optional<double>& value,
                       const std::string& description);
// A size as parse_byte_size reads it.
CLI::Option* add_byte_size(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                           const std::string& description);
// One of `choices`: its place among them.
CLI::Option* add_choice(CLI::App& app, const std::string& name, std::optional<std::size_t>& value,
                        const std::string& description, const std::vector<std::string>& choices);
// A stream by its raw handle, as snapshots have it: decimal, or hexadecimal after 0x; below 2^63.
CLI::Option* add_stream(CLI::App& app, const std::string& name, std::optional<std::int64_t>& value,
                        const std::string& description);
// A pool by the pair of numbers that snapshots have: "0,1".
CLI::Option* add_pool_id(CLI::App& app, const std::string& name,
                         std::optional<std::pair<std::int64_t, std::int64_t>>& value, const std::string& description);

}  // namespace cistern
