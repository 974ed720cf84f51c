#pragma once

// Where the out-of-memory text and the summary go.

#include <string>
#include <string_view>

namespace cistern {

// Writes `text` and `summary` to "stderr" or "stdout", appends them to any other name as a
// file, or does nothing for "off". Never throws: a program that is out of memory must still
// get its OutOfMemoryError. Thread safety: one call's output stays together.
void dump_out_of_memory(const std::string& where, std::string_view text, std::string_view summary) noexcept;

}  // namespace cistern
