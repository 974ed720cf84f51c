#include "tools/byte_count.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace cistern {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};

// The power of two of a unit; none: bytes.
std::optional<unsigned> unit_shift(std::string_view unit) {
  if (unit.empty()) return 0;
  for (unsigned i = 0; i < kUnits.size(); ++i)
    if (unit == kUnits[i]) return 10 * i;
  return std::nullopt;
}

}  // namespace

std::uint64_t parse_byte_count(std::string_view text, std::string_view what) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto shift = unit_shift(text.substr(static_cast<std::size_t>(end - text.data())));
  if (error != std::errc() || !shift)
    throw InvalidArgument(
        fmt::format("{} '{}': expected a whole number of bytes, or one with KiB, MiB, GiB or TiB", what, text));
  if (number > (std::numeric_limits<std::uint64_t>::max() >> *shift))
    throw InvalidArgument(fmt::format("{} '{}': expected less than 2^64 bytes", what, text));
  return number << *shift;
}

}  // namespace cistern
