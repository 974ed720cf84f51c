#pragma once

// The demo's command line.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cistern::demo {

struct CommandLine {
  std::size_t steps = 500;
  std::uint64_t seed = 1;
  std::optional<std::filesystem::path> text;  // none: Debian's licence texts
  std::filesystem::path output = ".";         // the folder for the snapshot and the trace
  bool help = false;
};

[[nodiscard]] std::string usage();
// Of the arguments after the program's name. Throws std::invalid_argument, naming the argument
// and what was expected.
[[nodiscard]] CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace cistern::demo
