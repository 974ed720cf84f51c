#pragma once

#include <vector>

#include "tests/contract/door.h"

namespace cistern::contract {

// The free functions, an allocator of one's own, the owners and allocators of C++, and C.
[[nodiscard]] std::vector<DoorKind> native_doors();
// Thrust's allocator and cuda::mr of the Toolkit's CCCL; none where that is absent.
[[nodiscard]] std::vector<DoorKind> cccl_doors();

}  // namespace cistern::contract
