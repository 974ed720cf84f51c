#pragma once

// Sizes in bytes as people type them.
//
// Thread safety: a function of its argument.

#include <cstdint>
#include <optional>
#include <string_view>

namespace cistern {

// Reads "1048576", "40GiB", "512MiB": a whole number and at most one unit of B, KiB, MiB, GiB, TiB.
// Nothing for any other text, and for 2^64 bytes or more.
[[nodiscard]] std::optional<std::uint64_t> parse_byte_size(std::string_view text) noexcept;

}  // namespace cistern
