#pragma once

// HostPages: the host memory behind simulated device addresses.
//
// With Backing::memory, address space is reserved at once and pages appear when they are
// touched. Device allocations are private pages. Physical handles are parts of an unnamed
// file, which is mapped wherever a handle is: two addresses of one handle are one memory.
// With Backing::none addresses are plain numbers and every other call does nothing.
// Not thread-safe: the driver holds its lock around every call.

#include <cistern/simulated.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern::simulated {

enum class PageAccess { none, read, read_write };

class HostPages {
 public:
  explicit HostPages(Backing backing) : backing_(backing) {}
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // Address space at a multiple of the granule, for private pages and for mappings of the
  // file. Throws InvalidArgument if the host refuses so much.
  [[nodiscard]] std::uint64_t reserve_private(std::size_t bytes);
  [[nodiscard]] std::uint64_t reserve_for_mappings(std::size_t bytes);

  // Gives private pages back: they read as zero from now on.
  void discard(std::uint64_t address, std::size_t bytes) noexcept;

  // Makes [offset, offset + bytes) of the file appear at `address`, replacing what was there.
  // False, unchanged, if the host refuses.
  [[nodiscard]] bool map(std::uint64_t address, std::uint64_t offset, std::size_t bytes, PageAccess access) noexcept;
  [[nodiscard]] bool unmap(std::uint64_t address, std::size_t bytes) noexcept;
  // Gives pages of the file back: they read as zero from now on.
  void discard_file(std::uint64_t offset, std::size_t bytes) noexcept;

 private:
  struct Reservation {
    void* address;
    std::size_t bytes;
  };

  std::uint64_t reserve(std::size_t bytes, int protection);
  bool open_file() noexcept;
  bool grow_file(std::uint64_t bytes) noexcept;

  Backing backing_;
  std::uint64_t next_number_ = std::uint64_t{1} << 40;  // of Backing::none: above what programs use
  std::vector<Reservation> reservations_;
  int file_ = -1;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace cistern::simulated
