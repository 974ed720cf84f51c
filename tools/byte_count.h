#pragma once

// Counts of bytes as people type them.

#include <cstdint>
#include <string_view>

namespace cistern {

// Reads "1048576", "40GiB", "512MiB": a whole number and at most one unit of B, KiB, MiB, GiB, TiB.
// Throws InvalidArgument naming `what`, the text and what was expected.
[[nodiscard]] std::uint64_t parse_byte_count(std::string_view text, std::string_view what);

}  // namespace cistern
