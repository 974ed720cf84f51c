#include "allocator/creation_harm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace cistern {
namespace {

constexpr std::size_t kParts = 8;
constexpr int kScale = 52;  // sizes are compared as fractions of this many bits

// 2^(i/8), for i from 1 to 7.
const std::array<std::uint64_t, kParts - 1> kRoots = [] {
  std::array<std::uint64_t, kParts - 1> roots{};
  for (std::size_t i = 0; i < roots.size(); ++i)
    roots[i] = static_cast<std::uint64_t>(std::exp2(static_cast<double>(i + 1) / kParts + kScale));
  return roots;
}();

}  // namespace

std::size_t CreationHarm::class_of(Sectors sectors) {
  const auto bits = static_cast<std::uint64_t>(sectors);
  const int octave = static_cast<int>(std::bit_width(bits)) - 1;
  const std::uint64_t scaled = octave <= kScale ? bits << (kScale - octave) : bits >> (octave - kScale);
  std::size_t part = 0;  // without a jump, which nothing could foresee
  for (const std::uint64_t root : kRoots) part += scaled >= root ? 1 : 0;
  return std::min(kParts * static_cast<std::size_t>(octave) + part, kClasses - 1);
}

void CreationHarm::add_stream(StreamNumber stream) {
  while (streams_.size() <= static_cast<std::size_t>(stream))
    streams_.emplace_back().fill(static_cast<std::uint16_t>(kAll));
}

double CreationHarm::of(Sectors sectors, StreamNumber stream) const {
  const auto index = static_cast<std::size_t>(stream);
  return index < streams_.size() ? static_cast<double>(streams_[index][class_of(sectors)]) / kAll : 1;
}

}  // namespace cistern
