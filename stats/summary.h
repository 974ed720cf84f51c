#pragma once

// The table of torch.cuda.memory_summary.

#include <cistern/fixed_text.h>
#include <cistern/stats.h>

#include <string>
#include <string_view>

namespace cistern {

// 47 lines of 78 bytes, or 29 without the rows of the single pools when `abbreviated`.
// `title` is the product in the second line: seven letters, "cistern" or "PyTorch"; with
// "PyTorch" the text equals PyTorch's byte for byte. docs/statistics.md explains the rows.
[[nodiscard]] std::string format_summary(const MemoryStats& stats, int device, bool abbreviated,
                                         std::string_view title);
// The whole table without host memory: room for 47 lines whose every cell overflows.
using SummaryText = FixedText<8192>;
void append_summary(SummaryText& text, const MemoryStats& stats, int device, bool abbreviated, std::string_view title);

}  // namespace cistern
