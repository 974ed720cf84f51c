#include "stats/sizes.h"

namespace cistern {

FixedText<24> format_size(std::uint64_t bytes) {
  constexpr std::uint64_t kKib = 1024;
  constexpr std::uint64_t kMib = 1024 * kKib;
  constexpr std::uint64_t kGib = 1024 * kMib;
  const auto in_units_of = [bytes](std::uint64_t unit) {
    return static_cast<double>(bytes) / static_cast<double>(unit);
  };
  FixedText<24> text;
  if (bytes <= kKib)
    append(text, "{} bytes", bytes);
  else if (bytes <= kMib)
    append(text, "{:.2f} KiB", in_units_of(kKib));
  else if (bytes <= kGib)
    append(text, "{:.2f} MiB", in_units_of(kMib));
  else
    append(text, "{:.2f} GiB", in_units_of(kGib));
  return text;
}

}  // namespace cistern
