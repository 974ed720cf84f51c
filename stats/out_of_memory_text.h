#pragma once

// The text of an OutOfMemoryError.

#include <cistern/error.h>

#include <string_view>

namespace cistern {

// One paragraph, its figures in PyTorch's order: what was tried (by segment size, as PyTorch says
// it), the device, `processes` (sentences on who uses it, or nothing), the limit if one is set,
// where the memory is, the cause in words, and the report's advice if it has any; the text adds no
// advice of its own, so it never names an option that would not help. What counts as allocated
// includes what is free in private pools, as there. Keeps the two forms that programs search for:
// "out of memory" and "Tried to allocate <number> <bytes|KiB|MiB|GiB>". Allocates no host memory.
[[nodiscard]] OutOfMemoryError::Text format_out_of_memory(const OutOfMemoryReport& report,
                                                          std::string_view processes = {});

}  // namespace cistern
