#pragma once

// What would help a device that is short of memory.

#include "stats/report.h"

#include <string>
#include <vector>

namespace cistern {

// A sentence for each option or call that would give a hundredth of the device or more, the most
// first; none that would not help now.
[[nodiscard]] std::vector<std::string> advice_of(const MemoryReport& report);

}  // namespace cistern
