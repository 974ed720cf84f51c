#pragma once

// Text as UTF-8: names of devices, paths and stacks may be anything, a file must not be.

#include <cstddef>
#include <string>
#include <string_view>

namespace cistern {

// U+FFFD, for what is no UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Piece {
  std::size_t bytes;
  bool valid;
};

// The first character of `text`, or else the longest start of one: the piece that one U+FFFD
// stands for (Unicode's practice: overlong forms, surrogates and values above U+10FFFF are
// none). Requires: `text` is not empty.
[[nodiscard]] Utf8Piece first_utf8_piece(std::string_view text);

// Whether all of it is UTF-8.
[[nodiscard]] bool is_utf8(std::string_view text);
// The text with U+FFFD for every piece that is no UTF-8.
[[nodiscard]] std::string with_replacements(std::string_view text);

}  // namespace cistern
