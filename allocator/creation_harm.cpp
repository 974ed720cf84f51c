#include "allocator/creation_harm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cistern {

const std::array<std::uint64_t, CreationHarm::kParts + 1> CreationHarm::kRoots = [] {
  std::array<std::uint64_t, kParts + 1> roots{};
  for (std::size_t i = 0; i < roots.size(); ++i)
    roots[i] = static_cast<std::uint64_t>(std::exp2(static_cast<double>(i) / kParts + kScale));
  return roots;
}();

const std::array<std::uint8_t, CreationHarm::kCells> CreationHarm::kBegun = [] {
  std::array<std::uint8_t, kCells> begun{};
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    const std::uint64_t begin = (kCells + cell) << (kScale - kCellBits);
    begun[cell] = static_cast<std::uint8_t>(std::upper_bound(kRoots.begin(), kRoots.end(), begin) - kRoots.begin() - 1);
  }
  return begun;
}();

void CreationHarm::add_streams(StreamNumber last) {
  while (streams_.size() <= static_cast<std::size_t>(last))
    streams_.emplace_back().fill(static_cast<std::uint16_t>(kAll));
}

double CreationHarm::of(Sectors sectors, StreamNumber stream) const {
  const auto index = static_cast<std::size_t>(stream);
  return index < streams_.size() ? static_cast<double>(streams_[index][class_of(sectors)]) / kAll : 1;
}

}  // namespace cistern
