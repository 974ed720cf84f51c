#pragma once

// The types of option values. Each reader takes the pair that it reads and throws
// InvalidArgument naming its key, its value and what was expected.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "allocator/options_grammar.h"

namespace cistern {

[[noreturn]] void fail_option(const OptionPair& pair, std::string_view expected);

// The value of a pair that takes no list.
[[nodiscard]] const std::string& single_value(const OptionPair& pair, std::string_view expected);
// Exactly True or False.
[[nodiscard]] bool boolean_value(const OptionPair& pair);
// A decimal integer from `least` to `most`. `unit` reads after "an integer", e.g. "of MiB".
[[nodiscard]] std::uint64_t integer_value(const OptionPair& pair, std::uint64_t least, std::uint64_t most,
                                          std::string_view unit = {});
// The same in MiB, as bytes; signed 64-bit statistics can show what it allows.
[[nodiscard]] std::size_t mebibytes_value(const OptionPair& pair, std::uint64_t least);
[[nodiscard]] double number_value(const OptionPair& pair, std::string_view expected);
// The index of the value among `choices`.
[[nodiscard]] std::size_t choice_value(const OptionPair& pair, std::span<const std::string_view> choices);

// All of `text` as a decimal integer, or as a number; false for anything else.
[[nodiscard]] bool parse_integer(std::string_view text, std::uint64_t& number);
[[nodiscard]] bool parse_number(std::string_view text, double& number);

}  // namespace cistern
