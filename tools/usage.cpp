#include "tools/usage.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <ostream>

namespace cistern {

bool parse_usage(CLI::App& app, const Arguments& arguments, const CommandStreams& streams) {
  // CLI11 takes a vector from its end.
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    streams.out << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(fmt::format("{}: {}; see {} --help", app.get_name(), error.what(), app.get_name()));
  }
  return true;
}

}  // namespace cistern
