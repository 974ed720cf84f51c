#pragma once

// A streaming writer of Python's pickle: containers, numbers and text, nothing that a reader
// would have to run. With JsonWriter's calls, so that one description of a snapshot is written as either.

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

// The protocols that PyTorch's viewer reads.
inline constexpr int kOldestPickleProtocol = 2;
inline constexpr int kNewestPickleProtocol = 4;

// Writes one value: a dict, a list, a tuple or a scalar, by those opcodes that PyTorch's viewer reads
// and tests. Items go in groups of at most 1000, since the viewer spreads each group into a
// function's arguments. Bytes that are no UTF-8 become U+FFFD. Memory: a buffer.
// Write errors show in the stream's state after finish(). Requires: calls in an order that makes a
// value (a key before each value in a dict); asserted in debug builds. Not thread-safe.
class PickleWriter {
 public:
  // `out` must outlive the writer. Throws InvalidArgument for another protocol than 2, 3 or 4.
  PickleWriter(std::ostream& out, int protocol);
  PickleWriter(const PickleWriter&) = delete;
  PickleWriter& operator=(const PickleWriter&) = delete;

  PickleWriter& begin_object();
  PickleWriter& end_object();
  PickleWriter& begin_array();
  PickleWriter& end_array();
  // A tuple of `size` values, which follow.
  PickleWriter& begin_tuple(std::size_t size);
  PickleWriter& end_tuple();
  PickleWriter& key(std::string_view name);
  PickleWriter& string(std::string_view text);
  PickleWriter& boolean(bool value);
  PickleWriter& null();
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) PickleWriter& number(Number value) {
    if constexpr (std::signed_integral<Number>) {
      return signed_number(value);
    } else {
      return unsigned_number(value);
    }
  }
  PickleWriter& number(double value);

  // What the reader is told to keep: the list or dict that has just ended, under `slot`. A slot below
  // slots() may be filled again, which replaces what was there.
  PickleWriter& keep(std::uint32_t slot);
  // The very object that `slot` keeps, once more.
  PickleWriter& kept(std::uint32_t slot);
  // How many slots there are: protocol 4 fills any number, but each once and in order; older
  // ones 256, since the opcode for more is not tested in the viewer.
  [[nodiscard]] std::uint32_t slots() const;
  [[nodiscard]] bool slots_are_filled_once() const { return protocol_ == kNewestPickleProtocol; }

  // Ends the pickle and hands all of it to the stream.
  void finish();

 private:
  enum class Scope : std::uint8_t { object, array, tuple };
  struct Level {
    Scope scope;
    std::uint32_t in_group = 0;  // items since the group's mark; 0: no group is open
    std::size_t size = 0;        // of a tuple
  };

  PickleWriter& signed_number(std::int64_t value);
  PickleWriter& unsigned_number(std::uint64_t value);
  void before_item();
  void before_value();
  void end_group();
  void append_text(std::string_view text);
  void append_little_endian(std::uint64_t value, int bytes);
  void append(char opcode) { buffer_ += opcode; }
  void flush_if_full();
  void flush();

  std::ostream& out_;
  int protocol_;
  std::string buffer_;
  std::vector<Level> levels_;
  std::uint32_t filled_ = 0;  // slots, of protocol 4
  bool after_key_ = false;
};

}  // namespace cistern
