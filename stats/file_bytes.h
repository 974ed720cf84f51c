#pragma once

// FileBytes: parts of a file that may change while it is read. A file that shrinks ends a read; one
// that is mapped would end the process (SIGBUS).
//
// Thread safety: any const member may be called from any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cistern {

class FileBytes {
 public:
  virtual ~FileBytes() = default;
  // When it was opened; 0 if it could not be.
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  // Reads `count` bytes from `offset` on; how many there were: less than `count` at the end, or where
  // reading fails.
  [[nodiscard]] virtual std::size_t read(std::uint64_t offset, char* to, std::size_t count) const noexcept = 0;

 protected:
  FileBytes() = default;
  FileBytes(const FileBytes&) = default;
  FileBytes& operator=(const FileBytes&) = default;
};

// What tells a file from all others, whatever its name leads to meanwhile.
struct FileIdentity {
  std::uint64_t device = 0;  // as makedev says it
  std::uint64_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

// Of the file that is mapped into this process at `address`; nothing if none is, or that is not known.
// Throws std::bad_alloc.
[[nodiscard]] std::optional<FileIdentity> mapped_file_at(std::uint64_t address);

// A regular file; anything else is empty.
class OpenFile final : public FileBytes {
 public:
  explicit OpenFile(const std::string& path) noexcept;
  ~OpenFile() override;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t read(std::uint64_t offset, char* to, std::size_t count) const noexcept override;
  // Nothing if it could not be opened.
  [[nodiscard]] const std::optional<FileIdentity>& identity() const noexcept { return identity_; }

 private:
  int file_ = -1;
  std::optional<FileIdentity> identity_;
  std::uint64_t size_ = 0;
};

}  // namespace cistern
