#pragma once

// A streaming JSON writer: what is written goes out piece by piece, so that a large
// snapshot never stands in memory twice.

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

// Writes one JSON value: an object, an array or a scalar. Numbers are written exactly (the
// stream's locale has no effect) and text as UTF-8; bytes that are no UTF-8 become U+FFFD.
// Each object in an array starts a line. Write errors show in the stream's state after
// finish(). Requires: calls in an order that makes JSON (a key before each value in an
// object); asserted in debug builds. Not thread-safe.
class JsonWriter {
 public:
  // `out` must outlive the writer.
  explicit JsonWriter(std::ostream& out) : out_(out) {}
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& boolean(bool value);
  // A value that is JSON already, for what is written a million times.
  JsonWriter& verbatim_object(std::string_view json);
  JsonWriter& null();
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) JsonWriter& number(Number value) {
    if constexpr (std::signed_integral<Number>) {
      return signed_number(value);
    } else {
      return unsigned_number(value);
    }
  }
  // The shortest text that reads back as `value`, always with a fraction or an exponent;
  // null for infinities and NaN, which JSON lacks.
  JsonWriter& number(double value);
  // Ends the text with a line feed and hands all of it to the stream.
  void finish();

 private:
  enum class Scope : std::uint8_t { object, array };
  struct Level {
    Scope scope;
    bool empty = true;
  };

  JsonWriter& signed_number(std::int64_t value);
  JsonWriter& unsigned_number(std::uint64_t value);
  JsonWriter& begin(Scope scope, char bracket);
  JsonWriter& end(Scope scope, char bracket);
  void before_value(bool is_object);
  void append_quoted(std::string_view text);
  void append_ascii(char character);
  void flush();

  std::ostream& out_;
  std::string buffer_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace cistern
