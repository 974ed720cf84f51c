#pragma once

// ByteReader: numbers and strings out of bytes that may be anything.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cistern {

// Reads little-endian values in order. What lies beyond the end reads as 0 or "", and is_bad()
// from then on: a caller may look once, at the end of a loop that a bad reader ends.
class ByteReader {
 public:
  ByteReader() = default;
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool is_bad() const noexcept { return bad_; }
  [[nodiscard]] bool at_end() const noexcept { return bad_ || place_ == bytes_.size(); }
  [[nodiscard]] std::size_t place() const noexcept { return place_; }

  [[nodiscard]] std::uint64_t number(std::size_t bytes) noexcept {
    if (bytes > 8 || bytes > left()) return fail();
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + place_, bytes);
    place_ += bytes;
    return value;
  }
  [[nodiscard]] std::uint8_t byte() noexcept { return static_cast<std::uint8_t>(number(1)); }
  // DWARF's variable-length numbers.
  [[nodiscard]] std::uint64_t uleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint64_t part = byte();
      if (shift < 64) value |= (part & 0x7f) << shift;
      if ((part & 0x80) == 0) return value;
    }
  }
  [[nodiscard]] std::int64_t sleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint64_t part = byte();
      if (shift < 64) value |= (part & 0x7f) << shift;
      if ((part & 0x80) != 0) continue;
      if ((part & 0x40) != 0 && shift + 7 < 64) value |= ~std::uint64_t{0} << (shift + 7);
      return static_cast<std::int64_t>(value);
    }
  }
  [[nodiscard]] std::string_view string() noexcept {
    const std::size_t end = bytes_.find('\0', place_);
    if (bad_ || end == std::string_view::npos) {
      fail();
      return {};
    }
    const std::string_view text = bytes_.substr(place_, end - place_);
    place_ = end + 1;
    return text;
  }
  // The next bytes as a reader of their own.
  [[nodiscard]] ByteReader part(std::uint64_t bytes) noexcept {
    if (bytes > left()) {
      fail();
      return {};
    }
    ByteReader part(bytes_.substr(place_, bytes));
    place_ += bytes;
    return part;
  }
  void skip(std::uint64_t bytes) noexcept {
    if (bytes > left())
      fail();
    else
      place_ += bytes;
  }

 private:
  [[nodiscard]] std::size_t left() const noexcept { return bad_ ? 0 : bytes_.size() - place_; }
  std::uint64_t fail() noexcept {
    bad_ = true;
    return 0;
  }

  std::string_view bytes_;
  std::size_t place_ = 0;
  bool bad_ = false;
};

}  // namespace cistern
