#include "allocator/quoted_text.h"

#include <fmt/format.h>

#include <iterator>

namespace cistern {
namespace {

void append_escaped(std::string& out, char character) {
  switch (character) {
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      if (character >= ' ' && character <= '~')
        out += character;
      else
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(character));
  }
}

}  // namespace

std::string quoted_text(std::string_view text, std::size_t limit) {
  std::string out = "'";
  for (char character : text.substr(0, limit)) append_escaped(out, character);
  if (text.size() > limit) out += "...";
  return out += '\'';
}

}  // namespace cistern
