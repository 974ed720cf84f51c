#include "runtime/simulated/host_pages.h"

#include <cistern/error.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/simulated/granule.h"

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

}  // namespace

HostPages::~HostPages() {
  for (const Reservation& reservation : reservations_) ::munmap(reservation.address, reservation.bytes);
  if (file_ >= 0) ::close(file_);
}

std::uint64_t HostPages::reserve(std::size_t bytes, int protection) {
  const std::size_t padded = bytes + kGranule;
  if (backing_ == Backing::none) {
    const std::uint64_t number = next_number_;
    next_number_ += round_up(padded, kGranule);
    return number;
  }
  reservations_.reserve(reservations_.size() + 1);
  void* address = ::mmap(nullptr, padded, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw InvalidArgument("simulated driver: the host refuses " + std::to_string(padded) + " bytes of address space (" +
                          std::strerror(errno) + "); give fewer devices, less capacity or backing=none");
  }
  // A core file must not hold a whole device.
  ::madvise(address, padded, MADV_DONTDUMP);
  reservations_.push_back({address, padded});
  return round_up(reinterpret_cast<std::uint64_t>(address), kGranule);
}

std::uint64_t HostPages::reserve_private(std::size_t bytes) { return reserve(bytes, PROT_READ | PROT_WRITE); }
std::uint64_t HostPages::reserve_for_mappings(std::size_t bytes) { return reserve(bytes, PROT_NONE); }

void HostPages::discard(std::uint64_t address, std::size_t bytes) noexcept {
  if (backing_ == Backing::none) return;
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t end = address + bytes;
  const std::uint64_t first_whole = round_up(address, page);
  const std::uint64_t last_whole = round_down(end, page);
  if (first_whole >= last_whole) {
    std::memset(pointer_to(address), 0, bytes);
    return;
  }
  std::memset(pointer_to(address), 0, first_whole - address);
  std::memset(pointer_to(last_whole), 0, end - last_whole);
  ::madvise(pointer_to(first_whole), last_whole - first_whole, MADV_DONTNEED);
}

bool HostPages::open_file() noexcept {
  if (file_ < 0) file_ = ::memfd_create("cistern simulated device memory", MFD_CLOEXEC);
  return file_ >= 0;
}

bool HostPages::grow_file(std::uint64_t bytes) noexcept {
  if (bytes <= file_bytes_) return true;
  if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) return false;
  file_bytes_ = bytes;
  return true;
}

bool HostPages::map(std::uint64_t address, std::uint64_t offset, std::size_t bytes, PageAccess access) noexcept {
  if (backing_ == Backing::none) return true;
  if (!open_file() || !grow_file(offset + bytes)) return false;
  return ::mmap(pointer_to(address), bytes, protection_of(access), MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_,
                static_cast<off_t>(offset)) != MAP_FAILED;
}

bool HostPages::unmap(std::uint64_t address, std::size_t bytes) noexcept {
  if (backing_ == Backing::none) return true;
  return ::mmap(pointer_to(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

void HostPages::discard_file(std::uint64_t offset, std::size_t bytes) noexcept {
  if (backing_ == Backing::none || offset >= file_bytes_) return;
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

}  // namespace cistern::simulated
