#include "tools/input_file.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <cstring>

#include "allocator/quoted_text.h"
#include "tools/byte_source.h"

namespace cistern {
namespace {

// A path may be in any language, but stays on one line.
std::string printable_name(std::string_view name) {
  std::string out(name);
  std::replace_if(
      out.begin(), out.end(), [](char character) { return (character >= 0 && character < ' ') || character == '\x7f'; },
      '?');
  return out;
}

std::string rest_of(ByteSource source) {
  std::string bytes;
  while (!source.at_end()) bytes += source.read_some();
  return bytes;
}

}  // namespace

std::string inflate_gzip(std::string_view compressed, std::string_view name) {
  return rest_of(ByteSource::of_text(compressed, name));
}

std::string read_input_file(const std::string& path) { return rest_of(ByteSource::of_file(path)); }

void fail_to_read(std::string_view path, int error) {
  throw InvalidArgument(
      fmt::format("{}: {}: expected a file that can be read", printable_name(path), std::strerror(error)));
}

void fail_input(std::string_view name, std::size_t line, std::string_view text, std::string_view expected) {
  throw InvalidArgument(fmt::format("{}:{}: {}: expected {}", printable_name(name), line, quoted_text(text), expected));
}

void fail_input(std::string_view name, std::string_view text, std::string_view expected) {
  throw InvalidArgument(fmt::format("{}: {}: expected {}", printable_name(name), quoted_text(text), expected));
}

}  // namespace cistern
