#pragma once

// Sizes as error messages and reports print them.

#include <cstdint>
#include <string>

namespace cistern {

// "512 bytes", or with two decimals KiB, MiB, GiB: "20.00 MiB". A unit holds up to 1024 of
// itself inclusive (1024 bytes, 1024.00 KiB) and there is none above GiB, as in PyTorch's
// messages, which programs parse.
[[nodiscard]] std::string format_size(std::uint64_t bytes);

}  // namespace cistern
