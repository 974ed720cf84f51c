#include "allocator/creation_harm.h"

#include <cstdint>

namespace cistern {

double CreationHarm::of(Sectors sectors, StreamNumber stream) const {
  const auto index = static_cast<std::size_t>(stream);
  return index < streams_.size() ? static_cast<double>(kAll - streams_[index][class_of(sectors)]) / kAll : 1;
}

}  // namespace cistern
