#include "runtime/simulated/host_pages.h"

#include <cistern/error.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

namespace cistern::simulated {
namespace {

void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

int protection_of(PageAccess access) {
  switch (access) {
    case PageAccess::none:
      return PROT_NONE;
    case PageAccess::read:
      return PROT_READ;
    case PageAccess::read_write:
      break;
  }
  return PROT_READ | PROT_WRITE;
}

[[noreturn]] void refuse(std::uint64_t bytes, const char* what) {
  throw InvalidArgument("simulated driver: the host refuses " + std::to_string(bytes) + " bytes of " + what + " (" +
                        std::strerror(errno) + "); give fewer devices, less capacity or backing=none");
}

// The part of a range that is whole pages of the host; the rest is its edges.
struct WholePages {
  WholePages(std::uint64_t address, std::size_t bytes) {
    static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    begin = std::min(round_up(address, page), address + bytes);
    end = std::max(round_down(address + bytes, page), begin);
  }
  std::uint64_t begin;
  std::uint64_t end;
};

}  // namespace

HostPages::~HostPages() {
  for (const Reservation& reservation : reservations_) ::munmap(reservation.address, reservation.bytes);
  if (file_ >= 0) ::close(file_);
}

std::optional<std::uint64_t> HostPages::try_reserve(std::size_t bytes, int protection) {
  const std::size_t padded = bytes + kGranule;
  if (backing_ == Backing::none) {
    const std::uint64_t number = next_number_;
    next_number_ += round_up(padded, kGranule);
    return number;
  }
  reservations_.reserve(reservations_.size() + 1);
  void* address = ::mmap(nullptr, padded, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return std::nullopt;
  reservations_.push_back({address, padded});
  return round_up(reinterpret_cast<std::uint64_t>(address), kGranule);
}

std::uint64_t HostPages::reserve(std::size_t bytes, int protection) {
  const std::optional<std::uint64_t> address = try_reserve(bytes, protection);
  if (!address) refuse(bytes, "address space");
  return *address;
}

std::uint64_t HostPages::reserve_device(std::size_t bytes) {
  device_ranges_.reserve(device_ranges_.size() + 1);
  const FilePlace place = reserve_file(bytes);
  const std::uint64_t address = reserve(bytes, PROT_NONE);
  if (!map(address, place, bytes, PageAccess::read_write)) refuse(bytes, "device memory");
  device_ranges_.push_back({address, bytes, place.offset});
  return address;
}

AddressWindow HostPages::reserve_for_mappings(std::size_t least, std::size_t wanted) {
  for (std::size_t bytes = wanted; bytes > least; bytes = round_down(bytes / 2, kGranule))
    if (const auto address = try_reserve(bytes, PROT_NONE)) return {*address, *address + bytes};
  const std::uint64_t address = reserve(least, PROT_NONE);
  return {address, address + least};
}

std::uint64_t HostPages::reserve_private(std::size_t bytes) {
  const std::uint64_t address = reserve(bytes, PROT_READ | PROT_WRITE);
  // A core file must not hold all of it. Mappings of the file say so each for themselves.
  if (backing_ == Backing::memory) ::madvise(pointer_to(address), bytes, MADV_DONTDUMP);
  return address;
}

FilePlace HostPages::reserve_file(std::size_t bytes) {
  if (backing_ == Backing::none) return {};
  if (file_ < 0) file_ = ::memfd_create("cistern simulated device memory", MFD_CLOEXEC);
  // Sparse: a page takes memory once it is touched.
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(file_bytes_ + bytes)) != 0) refuse(bytes, "a memory file");
  const FilePlace place{file_, file_bytes_};
  file_bytes_ += bytes;
  return place;
}

FilePlace HostPages::place_of(std::uint64_t address) const noexcept {
  for (const DeviceRange& range : device_ranges_) {
    const std::uint64_t distance = address - range.begin;
    if (distance < range.bytes) return FilePlace{file_, range.offset + distance};
  }
  return {};
}

void HostPages::discard(FilePlace place, std::size_t bytes) noexcept {
  if (backing_ == Backing::none || place.file != file_) return;
  // The kernel zeroes the edges of a hole itself.
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place.offset),
              static_cast<off_t>(bytes));
}

void HostPages::discard_private(std::uint64_t address, std::size_t bytes) noexcept {
  if (backing_ == Backing::none) return;
  const WholePages whole(address, bytes);
  std::memset(pointer_to(address), 0, whole.begin - address);
  std::memset(pointer_to(whole.end), 0, address + bytes - whole.end);
  if (whole.begin != whole.end) ::madvise(pointer_to(whole.begin), whole.end - whole.begin, MADV_DONTNEED);
}

bool HostPages::map(std::uint64_t address, FilePlace place, std::size_t bytes, PageAccess access) noexcept {
  if (backing_ == Backing::none) return true;
  void* const mapped = ::mmap(pointer_to(address), bytes, protection_of(access), MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                              place.file, static_cast<off_t>(place.offset));
  if (mapped == MAP_FAILED) return false;
  // A core file must not hold a whole device.
  ::madvise(mapped, bytes, MADV_DONTDUMP);
  return true;
}

bool HostPages::unmap(std::uint64_t address, std::size_t bytes) noexcept {
  if (backing_ == Backing::none) return true;
  return ::mmap(pointer_to(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

}  // namespace cistern::simulated
