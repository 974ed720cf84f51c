#pragma once

// Files that the command reads, and the one line that says what is wrong with one.
//
// Thread safety: functions of their arguments alone.

#include <cstddef>
#include <string>
#include <string_view>

namespace cistern {

// All of the file at `path`; gzip'd data, told by their first bytes, are inflated.
// Throws InvalidArgument naming the path if it cannot be read, and as fail_input does for
// gzip data that are truncated, corrupt, or inflate to more than 64 MiB and 200 times their size, and for none at
// all in a file called .gz.
[[nodiscard]] std::string read_input_file(const std::string& path);
// The inflated gzip data `compressed`, called `name` in errors.
[[nodiscard]] std::string inflate_gzip(std::string_view compressed, std::string_view name);

// Throws InvalidArgument "NAME:LINE: 'text': expected EXPECTED": one line, a long text cut,
// control characters escaped.
[[noreturn]] void fail_input(std::string_view name, std::size_t line, std::string_view text, std::string_view expected);

// The same where lines mean nothing: "NAME: 'text': expected EXPECTED".
[[noreturn]] void fail_input(std::string_view name, std::string_view text, std::string_view expected);
// Throws InvalidArgument naming the path and the reason, an `errno`.
[[noreturn]] void fail_to_read(std::string_view path, int error);

}  // namespace cistern
