#pragma once

// The fake tool, as a test attaches it and asks what it saw.

#include <string>
#include <vector>

namespace cistern {

// Before the process's first call of NVTX. `follows_memory`: it follows the extension for memory, too.
void attach_tool(bool follows_memory = false);
// What it was told since the last question.
[[nodiscard]] std::vector<std::string> told();

}  // namespace cistern
