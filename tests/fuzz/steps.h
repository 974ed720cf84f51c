#pragma once

// A program of steps out of a fuzzer's bytes, for targets that compare a data structure with a plain one.

#include <cstddef>
#include <cstdint>

namespace cistern {

class Steps {
 public:
  Steps(const std::uint8_t* data, std::size_t size) : data_(data), end_(data + size) {}

  [[nodiscard]] bool more() const { return data_ != end_; }
  // The next bytes as a number, lowest first; behind the end 0.
  std::uint64_t byte() { return data_ == end_ ? 0 : *data_++; }
  std::uint64_t word() {
    const std::uint64_t low = byte();
    return low | byte() << 8;
  }

 private:
  const std::uint8_t* data_;
  const std::uint8_t* end_;
};

}  // namespace cistern
