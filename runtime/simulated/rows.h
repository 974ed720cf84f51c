#pragma once

// Copies and fills of rows that lie apart: cuMemcpy2D, cuMemcpy3D, cuMemsetD2D8 and their kin.

#include "runtime/driver_api.h"

#include <cstddef>
#include <cstdint>

namespace cistern::simulated {

// Holds every sum and product of two sizes.
__extension__ typedef unsigned __int128 WideSize;  // NOLINT(modernize-use-using): an extension has no other form

// Where the rows lie: row y of slice z begins at address + z * slice + y * pitch.
struct Rows {
  std::uint64_t address = 0;
  std::size_t pitch = 0;
  std::size_t slice = 0;
  [[nodiscard]] std::uint64_t row(std::size_t y, std::size_t z) const { return address + z * slice + y * pitch; }
};

// How many: `width` is in bytes. No row's end is beyond the last address.
struct RowCopy {
  Rows destination;
  Rows source;
  std::size_t width = 0;
  std::size_t height = 1;
  std::size_t depth = 1;
};

struct RowFill {
  Rows destination;
  unsigned value = 0;
  std::size_t value_bytes = 1;  // 1, 2 or 4
  std::size_t count = 0;        // values a row
  std::size_t height = 1;
};

}  // namespace cistern::simulated
