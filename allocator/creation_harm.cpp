#include "allocator/creation_harm.h"

#include <cstdint>

namespace cistern {

void CreationHarm::add_streams(StreamNumber last) {
  while (streams_.size() <= static_cast<std::size_t>(last))
    streams_.emplace_back().fill(static_cast<std::uint16_t>(kAll));
}

double CreationHarm::of(Sectors sectors, StreamNumber stream) const {
  const auto index = static_cast<std::size_t>(stream);
  return index < streams_.size() ? static_cast<double>(streams_[index][class_of(sectors)]) / kAll : 1;
}

}  // namespace cistern
