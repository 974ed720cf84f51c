#pragma once

// The text of an OutOfMemoryError.

#include <cistern/error.h>

#include <string>

namespace cistern {

// One paragraph: what was tried (by segment size, as PyTorch says it), the device, the limit
// if one is set, where the memory is, the cause in words, and the report's advice if it has
// any; the text adds no advice of its own, so it never names an option that would not help.
// Keeps the two forms that programs search for: "out of memory" and
// "Tried to allocate <number> <bytes|KiB|MiB|GiB>".
[[nodiscard]] std::string format_out_of_memory(const OutOfMemoryReport& report);

}  // namespace cistern
