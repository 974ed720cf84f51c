#include "tools/command.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <ostream>
#include <string>
#include <string_view>

namespace cistern {
namespace {

struct Subcommand {
  const char* name;
  const char* description;
  int (*run)(const Arguments&, const CommandStreams&);
};

constexpr std::array<Subcommand, 9> kSubcommands = {{
    {"replay", "replay allocation traces and measure what the allocator does with them", replay_command},
    {"capacity", "find the least device capacity at which traces complete", capacity_command},
    {"workload", "write a generated trace, or list the generators", workload_command},
    {"summary", "print the memory summary of a snapshot file", summary_command},
    {"diff", "compare the live blocks of two snapshots, by stack and by tag", diff_command},
    {"leaks", "find blocks that are live at the end of a process, or of a part of its history", leaks_command},
    {"blocks", "list the blocks of a snapshot, chosen and sorted", blocks_command},
    {"explain", "tell which block of a snapshot would serve a request, or why none", explain_command},
    {"convert", "write a snapshot file as cistern's JSON, or as PyTorch's pickle or JSON", convert_command},
}};

std::string help_text() {
  std::string text =
      "Caching GPU memory allocator: traces, capacities and snapshots.\n"
      "Usage: cistern SUBCOMMAND ARGUMENTS...\n\n"
      "Subcommands (each has its own --help):\n";
  for (const Subcommand& subcommand : kSubcommands)
    text += fmt::format("  {:<10}{}\n", subcommand.name, subcommand.description);
  text +=
      "\nCISTERN_DEVICE chooses the device: cuda, simulated[:settings] or auto (the default here: CUDA\n"
      "where there is a device, else simulated).\n"
      "Exit status: 0; 1 when a replay ran out of memory or there are leaks; 2 for bad usage or a bad file.\n";
  return text;
}

std::string subcommand_names() {
  std::string names;
  for (const Subcommand& subcommand : kSubcommands)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", subcommand.name);
  return names;
}

int dispatch(const Arguments& arguments, const CommandStreams& streams) {
  if (arguments.empty())
    throw InvalidArgument(fmt::format("no subcommand; expected one of {}; see cistern --help", subcommand_names()));
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    streams.out << help_text();
    return kExitSuccess;
  }
  const auto* found = std::ranges::find(kSubcommands, std::string_view(name), &Subcommand::name);
  if (found == kSubcommands.end())
    throw InvalidArgument(
        fmt::format("unknown subcommand '{}'; expected one of {}; see cistern --help", name, subcommand_names()));
  const int status = found->run(Arguments(arguments.begin() + 1, arguments.end()), streams);
  // A full disk or a closed pipe must not look like success.
  streams.out.flush();
  if (!streams.out) throw InvalidArgument("standard output: could not write all of the result");
  return status;
}

// One line, whatever the text holds: those who call the command read line by line.
void print_error(std::ostream& err, std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  err << "cistern: " << text << std::endl;
}

}  // namespace

int run_command(const Arguments& arguments, const CommandStreams& streams) {
  try {
    return dispatch(arguments, streams);
  } catch (const std::exception& error) {
    print_error(streams.err, error.what());
  } catch (...) {
    print_error(streams.err, "an unknown exception ended the command");
  }
  return kExitBadUsage;
}

}  // namespace cistern
