#pragma once

// Physical memory as a file descriptor that any process can import, for as long as one is open.
//
// All handles of a driver lie in one file, so the descriptor is not that file: it is a socket with
// one message waiting in it, which holds the file, the place in it, and a lease. Importing looks at
// the message and leaves it there. The lease is the writing end of a pipe: whoever holds the
// descriptor, or memory that was imported from it, holds a copy, and the exporter's reading end tells
// when none is left, however they ended.
// Thread safety: the functions may be called from any thread.

#include "runtime/simulated/host_pages.h"
#include "runtime/simulated/owned_file.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace cistern::simulated {

struct LeasePipe {
  OwnedFile watch;  // the exporter's
  OwnedFile lease;
};
// Nothing if the system has no descriptors left.
[[nodiscard]] std::optional<LeasePipe> make_lease();
// Whether anybody holds the lease still.
[[nodiscard]] bool is_leased(const OwnedFile& watch) noexcept;

// What a descriptor holds.
struct SharedMemory {
  OwnedFile file;
  OwnedFile lease;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;  // its number before CUDA_VISIBLE_DEVICES
};
// -1 if the system has no descriptors left.
[[nodiscard]] int make_descriptor(FilePlace place, std::size_t bytes, int device, const OwnedFile& lease) noexcept;
// Nothing if it is no such descriptor. It stays as it is.
[[nodiscard]] std::optional<SharedMemory> open_descriptor(int descriptor) noexcept;

}  // namespace cistern::simulated
