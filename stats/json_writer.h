#pragma once

// A streaming JSON writer: what is written goes out piece by piece, so that a large
// snapshot never stands in memory twice.

#include <array>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace cistern {

// Writes one JSON value: an object, an array or a scalar. Numbers are written exactly (the
// stream's locale has no effect) and text as UTF-8; bytes that are no UTF-8 become U+FFFD.
// Each object in an array starts a line. Write errors show in the stream's state after
// finish(). Requires: calls in an order that makes JSON (a key before each value in an
// object), at most kDeepest levels inside each other; asserted in debug builds. Takes no host
// memory but what the stream does: for a snapshot of a process that has none left. Not thread-safe.
class JsonWriter {
 public:
  // `out` must outlive the writer.
  explicit JsonWriter(std::ostream& out) : out_(out), buffer_(out) {}
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& boolean(bool value);
  // An object that is JSON already, for what is written a million times: `json` is all of it up to the
  // last member's value, which is `text`, and the bracket.
  JsonWriter& verbatim_object(std::string_view json, std::string_view text);
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
  static constexpr std::size_t kDeepest = 128;
  // Large enough that handing it to the stream costs little beside formatting, and small enough
  // for any thread's stack.
  static constexpr std::size_t kBufferBytes = std::size_t{16} << 10;

  // Hands itself to the stream when it is full.
  class Buffer {
   public:
    using value_type = char;
    explicit Buffer(std::ostream& out) : out_(out) {}
    void push_back(char character) {
      if (used_ == bytes_.size()) flush();
      bytes_[used_++] = character;
    }
    Buffer& operator+=(char character) {
      push_back(character);
      return *this;
    }
    Buffer& operator+=(std::string_view text);
    void flush();

   private:
    std::ostream& out_;
    std::size_t used_ = 0;
    std::array<char, kBufferBytes> bytes_;
  };

  enum class Scope : std::uint8_t { object, array };
  struct Level {
    Scope scope = Scope::object;
    bool empty = true;
  };
  // A stack of them.
  class Levels {
   public:
    [[nodiscard]] bool empty() const { return depth_ == 0; }
    [[nodiscard]] Level& back() { return levels_[depth_ - 1]; }
    void push_back(Level level) {
      assert(depth_ < kDeepest && "no deeper");
      levels_[depth_++] = level;
    }
    void pop_back() { --depth_; }

   private:
    std::size_t depth_ = 0;
    std::array<Level, kDeepest> levels_;
  };

  JsonWriter& signed_number(std::int64_t value);
  JsonWriter& unsigned_number(std::uint64_t value);
  JsonWriter& begin(Scope scope, char bracket);
  JsonWriter& end(Scope scope, char bracket);
  void before_value(bool is_object);
  void append_quoted(std::string_view text);
  void append_ascii(char character);

  std::ostream& out_;
  Buffer buffer_;
  Levels levels_;
  bool after_key_ = false;
};

}  // namespace cistern
