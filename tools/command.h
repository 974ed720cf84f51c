#pragma once

// The `cistern` command as functions, one a subcommand, so that tests run them in process.
//
// Standard output carries a subcommand's result alone; what went wrong is one line on
// standard error. Not thread-safe: a subcommand owns its streams while it runs.

#include <iosfwd>
#include <string>
#include <vector>

namespace cistern {

// What the process ends with.
enum ExitStatus : int {
  kExitSuccess = 0,
  kExitOutOfMemory = 1,  // the work was done and printed, but memory ran out on the way
  kExitLeaks = 1,        // the same: there are leaks
  kExitBadUsage = 2,     // bad usage or a bad file: one line says which and what was expected
};

using Arguments = std::vector<std::string>;

struct CommandStreams {
  std::ostream& out;
  std::ostream& err;
  bool show_progress = false;  // `err` is a terminal, and somebody watches it
};

// `cistern ARGUMENTS...`, without the program's own name. Throws nothing.
[[nodiscard]] int run_command(const Arguments& arguments, const CommandStreams& streams);

// The subcommands, with the arguments after their names. A bad argument, option or file is
// thrown as one of cistern's errors, which run_command turns into a line and a status.
[[nodiscard]] int replay_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int capacity_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int workload_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int summary_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int diff_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int leaks_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int blocks_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int explain_command(const Arguments& arguments, const CommandStreams& streams);
[[nodiscard]] int convert_command(const Arguments& arguments, const CommandStreams& streams);

}  // namespace cistern
