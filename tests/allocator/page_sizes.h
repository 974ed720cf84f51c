#pragma once

#include "allocator/page_size.h"

namespace cistern {

inline constexpr PageSize kPageOf8(3);    // sectors
inline constexpr PageSize kPageOf128(7);  // sectors: two are a 64th

}  // namespace cistern
