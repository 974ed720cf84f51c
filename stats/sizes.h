#pragma once

// Sizes as error messages and reports print them.

#include <cistern/fixed_text.h>

#include "stats/fixed_text_format.h"

#include <cstdint>

namespace cistern {

// "512 bytes", or with two decimals KiB, MiB, GiB: "20.00 MiB". A unit holds up to 1024 of
// itself inclusive (1024 bytes, 1024.00 KiB) and there is none above GiB, as in PyTorch's
// messages, which programs parse.
[[nodiscard]] FixedText<24> format_size(std::uint64_t bytes);

}  // namespace cistern
