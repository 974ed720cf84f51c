#pragma once

// CUDA_VISIBLE_DEVICES, by the driver's rules.
//
// Thread safety: all functions may be called from any thread.

#include <string_view>
#include <vector>

namespace cistern::simulated {

// The devices, of `count`, that the variable's text names, in its order. An entry is a number
// (what follows its digits is ignored) or "GPU-" and the first digits of one device's UUID.
// The first that names no device ends the list; a device named twice makes it empty.
[[nodiscard]] std::vector<int> find_visible_devices(std::string_view text, int count);

}  // namespace cistern::simulated
