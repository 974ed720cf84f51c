#pragma once

// Units of simulated device memory, as the driver has them on current devices.

#include <cstddef>
#include <cstdint>

namespace cistern::simulated {

// What physical memory is handed out in; also the granularity of virtual memory management.
inline constexpr std::size_t kGranule = std::size_t{2} << 20;
// Device allocations below this share granules.
inline constexpr std::size_t kShareBelow = std::size_t{1} << 20;
// Alignment of every device allocation.
inline constexpr std::size_t kAllocationAlignment = 512;

// Requires: `unit` is a power of two and the result fits.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) & ~(unit - 1);
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) noexcept { return value & ~(unit - 1); }

// Addresses from `begin` up to, not including, `end`.
struct AddressWindow {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] bool contains(std::uint64_t address) const noexcept { return address >= begin && address < end; }
};

}  // namespace cistern::simulated
