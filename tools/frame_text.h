#pragma once

// Stacks and names of a file for people and for programs: a file may hold anything, a terminal must not
// obey it.
//
// Thread safety: functions of their arguments.

#include <cistern/snapshot.h>

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>

#include "stats/json_writer.h"

namespace cistern {

// One line of UTF-8 without control characters: a '?' for each.
[[nodiscard]] std::string printable_text(std::string_view text);

// "function  file:line", as far as they are known.
[[nodiscard]] std::string frame_text(const FrameInfo& frame);

// The first `shown` frames, a line each behind `indent`, and then how many more there are.
void print_frames(std::ostream& out, const StackInfo& stack, std::string_view indent, std::size_t shown);
// A list of objects as PyTorch's snapshots have them.
void write_frames(JsonWriter& json, const StackInfo& stack);

}  // namespace cistern
