#include "runtime/byte_size.h"

#include <array>
#include <charconv>
#include <limits>

namespace cistern {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};

// The power of two of a unit; none: bytes.
std::optional<unsigned> unit_shift(std::string_view unit) noexcept {
  if (unit.empty()) return 0;
  for (unsigned i = 0; i < kUnits.size(); ++i)
    if (unit == kUnits[i]) return 10 * i;
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> parse_byte_size(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto shift = unit_shift(text.substr(static_cast<std::size_t>(end - text.data())));
  if (error != std::errc() || !shift || number > (std::numeric_limits<std::uint64_t>::max() >> *shift))
    return std::nullopt;
  return number << *shift;
}

}  // namespace cistern
