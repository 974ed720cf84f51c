#pragma once

// OwnedFile: a file descriptor that is closed with its owner. -1: none.

#include <unistd.h>

#include <utility>

namespace cistern::simulated {

class OwnedFile {
 public:
  OwnedFile() noexcept = default;
  explicit OwnedFile(int file) noexcept : file_(file) {}
  ~OwnedFile() {
    if (file_ >= 0) ::close(file_);
  }
  OwnedFile(OwnedFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  OwnedFile& operator=(OwnedFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }

  [[nodiscard]] int get() const noexcept { return file_; }
  [[nodiscard]] explicit operator bool() const noexcept { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace cistern::simulated
