#pragma once

// HostPages: the host memory behind simulated device addresses.
//
// With Backing::memory, address space is reserved at once and pages appear when they are
// touched. All device memory is one unnamed file: device allocations are its first part, seen
// at their addresses from the start; physical handles are places behind it, mapped wherever a
// handle is, so that two addresses of one handle are one memory. Another process that is given
// the file can map the same bytes (place_of), and `map` takes a place in such a process's file.
// With Backing::none addresses are plain numbers and every other call does nothing.
// Not thread-safe: the driver holds its lock around every call.

#include <cistern/simulated.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/simulated/granule.h"

namespace cistern::simulated {

enum class PageAccess { none, read, read_write };

// Where bytes live: a file descriptor and an offset in the file. -1: nowhere (Backing::none).
struct FilePlace {
  int file = -1;
  std::uint64_t offset = 0;

  [[nodiscard]] FilePlace operator+(std::uint64_t bytes) const noexcept { return {file, offset + bytes}; }
  [[nodiscard]] bool operator==(const FilePlace&) const noexcept = default;
};

class HostPages {
 public:
  explicit HostPages(Backing backing) : backing_(backing) {}
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  [[nodiscard]] Backing backing() const noexcept { return backing_; }

  // Address space at a multiple of the granule. Each throws InvalidArgument if the host refuses
  // so much. For device allocations: pages of the file from its next offset on, always there.
  [[nodiscard]] std::uint64_t reserve_device(std::size_t bytes);
  // For mappings of the file: what is wanted, or the first of its halves that the host
  // gives, down to `least`. ThreadSanitizer and `ulimit -v` leave far less than the address space has.
  [[nodiscard]] AddressWindow reserve_for_mappings(std::size_t least, std::size_t wanted);
  // For memory of the host's own that no other process sees.
  [[nodiscard]] std::uint64_t reserve_private(std::size_t bytes);
  // A part of the file that is mapped nowhere yet.
  [[nodiscard]] FilePlace reserve_file(std::size_t bytes);

  // The bytes of an address in what reserve_device gave.
  [[nodiscard]] FilePlace place_of(std::uint64_t address) const noexcept;

  // Gives pages of this file back: they read as zero from now on, wherever they are mapped.
  void discard(FilePlace place, std::size_t bytes) noexcept;
  void discard_device(std::uint64_t address, std::size_t bytes) noexcept { discard(place_of(address), bytes); }
  void discard_private(std::uint64_t address, std::size_t bytes) noexcept;

  // Makes `bytes` at `place`, in this file or another process's, appear at `address`, replacing
  // what was there. False, unchanged, if the host refuses.
  [[nodiscard]] bool map(std::uint64_t address, FilePlace place, std::size_t bytes, PageAccess access) noexcept;
  [[nodiscard]] bool unmap(std::uint64_t address, std::size_t bytes) noexcept;

 private:
  struct Reservation {
    void* address;
    std::size_t bytes;
  };
  struct DeviceRange {
    std::uint64_t begin;
    std::uint64_t bytes;
    std::uint64_t offset;
  };

  std::optional<std::uint64_t> try_reserve(std::size_t bytes, int protection);
  std::uint64_t reserve(std::size_t bytes, int protection);

  Backing backing_;
  std::uint64_t next_number_ = std::uint64_t{1} << 40;  // of Backing::none: above what programs use
  std::vector<Reservation> reservations_;
  std::vector<DeviceRange> device_ranges_;
  int file_ = -1;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace cistern::simulated
