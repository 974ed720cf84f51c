#include "stats/json_writer.h"

#include "stats/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <iterator>
#include <ostream>

namespace cistern {

JsonWriter::Buffer& JsonWriter::Buffer::operator+=(std::string_view text) {
  while (!text.empty()) {
    if (used_ == bytes_.size()) flush();
    const std::size_t piece = std::min(text.size(), bytes_.size() - used_);
    std::copy_n(text.data(), piece, bytes_.data() + used_);
    used_ += piece;
    text.remove_prefix(piece);
  }
  return *this;
}

void JsonWriter::Buffer::flush() {
  out_.write(bytes_.data(), static_cast<std::streamsize>(used_));
  used_ = 0;
}

JsonWriter& JsonWriter::begin_object() { return begin(Scope::object, '{'); }
JsonWriter& JsonWriter::end_object() { return end(Scope::object, '}'); }
JsonWriter& JsonWriter::begin_array() { return begin(Scope::array, '['); }
JsonWriter& JsonWriter::end_array() { return end(Scope::array, ']'); }

JsonWriter& JsonWriter::key(std::string_view name) {
  assert(!levels_.empty() && levels_.back().scope == Scope::object && !after_key_ && "a key stands in an object");
  if (!levels_.back().empty) buffer_ += ", ";
  levels_.back().empty = false;
  append_quoted(name);
  buffer_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  before_value(false);
  append_quoted(text);
  return *this;
}

JsonWriter& JsonWriter::verbatim_object(std::string_view json, std::string_view text) {
  before_value(true);
  buffer_ += json;
  append_quoted(text);
  buffer_ += '}';
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  before_value(false);
  buffer_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() {
  before_value(false);
  buffer_ += "null";
  return *this;
}

JsonWriter& JsonWriter::signed_number(std::int64_t value) {
  before_value(false);
  fmt::format_to(std::back_inserter(buffer_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::unsigned_number(std::uint64_t value) {
  before_value(false);
  fmt::format_to(std::back_inserter(buffer_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  before_value(false);
  if (!std::isfinite(value)) {
    buffer_ += "null";
    return *this;
  }
  std::array<char, 64> digits;
  const auto end = fmt::format_to_n(digits.data(), digits.size(), "{}", value);
  const std::string_view text(digits.data(), end.size);
  buffer_ += text;
  // Readers that tell 0 from 0.0 must see a fraction.
  if (text.find_first_of(".e") == std::string_view::npos) buffer_ += ".0";
  return *this;
}

void JsonWriter::finish() {
  assert(levels_.empty() && "finished inside an object or an array");
  buffer_ += '\n';
  buffer_.flush();
  out_.flush();
}

JsonWriter& JsonWriter::begin(Scope scope, char bracket) {
  before_value(scope == Scope::object);
  buffer_ += bracket;
  levels_.push_back({scope});
  return *this;
}

JsonWriter& JsonWriter::end([[maybe_unused]] Scope scope, char bracket) {
  assert(!levels_.empty() && levels_.back().scope == scope && !after_key_ && "ends what was begun last");
  levels_.pop_back();
  buffer_ += bracket;
  return *this;
}

void JsonWriter::before_value(bool is_object) {
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (level.scope == Scope::object) {
    assert(after_key_ && "a value in an object follows its key");
    after_key_ = false;
    return;
  }
  if (!level.empty) buffer_ += is_object ? "," : ", ";
  if (is_object) buffer_ += '\n';
  level.empty = false;
}

void JsonWriter::append_quoted(std::string_view text) {
  buffer_ += '"';
  while (!text.empty()) {
    // Most text is plain, and goes in one piece.
    const auto special = std::find_if(text.begin(), text.end(), [](char character) {
      return static_cast<unsigned char>(character) < 0x20 || character == '"' || character == '\\' ||
             static_cast<unsigned char>(character) >= 0x80;
    });
    const auto plain = static_cast<std::size_t>(special - text.begin());
    buffer_ += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const Utf8Piece piece = first_utf8_piece(text);
    if (!piece.valid)
      buffer_ += kReplacementCharacter;
    else if (piece.bytes == 1)
      append_ascii(text.front());
    else
      buffer_ += text.substr(0, piece.bytes);
    text.remove_prefix(piece.bytes);
  }
  buffer_ += '"';
}

void JsonWriter::append_ascii(char character) {
  switch (character) {
    case '"':
      buffer_ += "\\\"";
      return;
    case '\\':
      buffer_ += "\\\\";
      return;
    case '\n':
      buffer_ += "\\n";
      return;
    case '\r':
      buffer_ += "\\r";
      return;
    case '\t':
      buffer_ += "\\t";
      return;
    default:
      if (static_cast<unsigned char>(character) < 0x20)
        fmt::format_to(std::back_inserter(buffer_), "\\u{:04x}", static_cast<unsigned>(character));
      else
        buffer_ += character;
  }
}

}  // namespace cistern
