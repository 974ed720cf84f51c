#pragma once

// What Python's pickletools calls the opcodes, so that a refusal can name the one it met.

#include <string_view>

namespace cistern::pickle {

// Empty for a byte that is no opcode of any protocol up to 5.
[[nodiscard]] std::string_view opcode_name(char opcode);

}  // namespace cistern::pickle
