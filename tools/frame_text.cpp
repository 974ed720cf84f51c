#include "tools/frame_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "stats/utf8.h"

namespace cistern {
namespace {

bool is_control(unsigned char character) { return character < 0x20 || character == 0x7f; }

// U+0080 to U+009F, which terminals take for commands too: C2 and a byte below A0.
bool begins_control(std::string_view rest) {
  return rest.size() > 1 && rest[0] == '\xc2' && static_cast<unsigned char>(rest[1]) < 0xa0;
}

}  // namespace

std::string printable_text(std::string_view text) {
  const std::string valid = with_replacements(text);
  std::string printable;
  printable.reserve(valid.size());
  for (std::size_t at = 0; at < valid.size(); ++at) {
    if (begins_control(std::string_view(valid).substr(at))) {
      printable += '?';
      ++at;
    } else {
      printable += is_control(static_cast<unsigned char>(valid[at])) ? '?' : valid[at];
    }
  }
  return printable;
}

std::string frame_text(const FrameInfo& frame) {
  std::string text = frame.name.empty() ? "??" : frame.name;
  if (!frame.filename.empty()) text += fmt::format("  {}:{}", frame.filename, frame.line);
  return printable_text(text);
}

void print_frames(std::ostream& out, const StackInfo& stack, std::string_view indent, std::size_t shown) {
  for (std::size_t i = 0; i < shown; ++i) out << indent << frame_text(stack[i]) << '\n';
  if (shown < stack.size()) out << indent << fmt::format("... {} more\n", stack.size() - shown);
}

void write_frames(JsonWriter& json, const StackInfo& stack) {
  json.begin_array();
  for (const FrameInfo& frame : stack) {
    json.begin_object();
    json.key("name").string(frame.name);
    json.key("filename").string(frame.filename);
    json.key("line").number(frame.line);
    json.end_object();
  }
  json.end_array();
}

}  // namespace cistern
