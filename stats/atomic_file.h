#pragma once

// Files that are either whole or not there.

#include <functional>
#include <iosfwd>
#include <string>

namespace cistern {

// Lets `write` fill a temporary file beside `path`, which then takes its place in one step:
// a failure leaves what was there before. A device or a pipe is written to directly.
// Throws InvalidArgument naming the path and the reason; what `write` throws passes.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

}  // namespace cistern
