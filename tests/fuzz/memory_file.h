#pragma once

// A file in memory, which may shrink while it is read.

#include <algorithm>
#include <cstring>
#include <string_view>

#include "stats/file_bytes.h"

namespace cistern {

class MemoryFile final : public FileBytes {
 public:
  // Has `left` bytes from the read of number `shrinks_at` on, counted from 0. The bytes must outlive it.
  explicit MemoryFile(std::string_view bytes, int shrinks_at = -1, std::size_t left = 0)
      : size_(bytes.size()), bytes_(bytes), shrinks_at_(shrinks_at), left_(left) {}

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t read(std::uint64_t offset, char* to, std::size_t count) const noexcept override {
    if (reads_++ == shrinks_at_) bytes_ = bytes_.substr(0, left_);
    if (offset >= bytes_.size()) return 0;
    count = std::min<std::size_t>(count, bytes_.size() - offset);
    if (count != 0) std::memcpy(to, bytes_.data() + offset, count);
    return count;
  }

 private:
  const std::size_t size_;
  mutable std::string_view bytes_;
  mutable int reads_ = 0;
  int shrinks_at_;
  std::size_t left_;
};

}  // namespace cistern
