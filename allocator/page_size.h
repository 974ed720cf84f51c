#pragma once

// The units of placement: sectors of 512 bytes, to which requests are rounded, and pages, the smallest handles.
//
// Thread safety: values.

#include <cstdint>

namespace cistern {

// A number of sectors, or an address in them.
using Sectors = std::int64_t;
inline constexpr Sectors kSectorBytes = 512;
// Of an arena's addresses, 512 TiB, and of all arenas'.
inline constexpr int kArenaBits = 40;
inline constexpr int kAddressBits = 56;

class PageSize {
 public:
  // A page of 2^`shift` sectors; 2 MiB by default.
  explicit constexpr PageSize(int shift = 12) : shift_(shift) {}

  [[nodiscard]] constexpr Sectors sectors() const { return Sectors{1} << shift_; }
  [[nodiscard]] constexpr Sectors sectors(std::int64_t pages) const { return pages << shift_; }
  // Whole pages in, and pages that hold, so many sectors.
  [[nodiscard]] constexpr std::int64_t whole(Sectors count) const { return count >> shift_; }
  [[nodiscard]] constexpr std::int64_t covering(Sectors count) const { return (count + sectors() - 1) >> shift_; }
  // Where an address lies in its page, and the page edges at and around it.
  [[nodiscard]] constexpr Sectors offset(Sectors address) const { return address & (sectors() - 1); }
  [[nodiscard]] constexpr Sectors down(Sectors address) const { return address - offset(address); }
  [[nodiscard]] constexpr Sectors up(Sectors address) const { return down(address + sectors() - 1); }

 private:
  int shift_;
};

}  // namespace cistern
