#include "stats/sizes.h"

#include <fmt/format.h>

namespace cistern {

std::string format_size(std::uint64_t bytes) {
  constexpr std::uint64_t kKib = 1024;
  constexpr std::uint64_t kMib = 1024 * kKib;
  constexpr std::uint64_t kGib = 1024 * kMib;
  const auto in_units_of = [bytes](std::uint64_t unit) {
    return static_cast<double>(bytes) / static_cast<double>(unit);
  };
  if (bytes <= kKib) return fmt::format("{} bytes", bytes);
  if (bytes <= kMib) return fmt::format("{:.2f} KiB", in_units_of(kKib));
  if (bytes <= kGib) return fmt::format("{:.2f} MiB", in_units_of(kMib));
  return fmt::format("{:.2f} GiB", in_units_of(kGib));
}

}  // namespace cistern
