#pragma once

// Text from outside, made fit for an error of one line.

#include <cstddef>
#include <string>
#include <string_view>

namespace cistern {

// `text` in single quotes: at most `limit` characters of it, "..." where more followed, and
// everything but printable ASCII as \n, \t, \r or \xNN.
[[nodiscard]] std::string quoted_text(std::string_view text, std::size_t limit = 80);

}  // namespace cistern
