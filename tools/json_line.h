#pragma once

// JSON Lines: one object a line, for programs.
//
// Thread safety: a function of its arguments.

#include <iosfwd>
#include <nlohmann/json.hpp>

namespace cistern {

// Prints the object on a line of its own. File names and options may be any bytes, JSON is
// UTF-8: what is not is printed as U+FFFD.
void print_json_line(std::ostream& out, const nlohmann::ordered_json& object);

}  // namespace cistern
