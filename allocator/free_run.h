#pragma once

// A run of free bytes of one stream.

#include <cstdint>

#include "allocator/page_size.h"

namespace cistern {

using StreamNumber = std::int32_t;

struct FreeRun {
  Sectors address = 0;
  Sectors sectors = 0;
  StreamNumber stream = 0;

  [[nodiscard]] Sectors end() const { return address + sectors; }
  friend bool operator==(const FreeRun&, const FreeRun&) = default;
};

}  // namespace cistern
