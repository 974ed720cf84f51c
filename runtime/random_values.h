#pragma once

// Values of a Philox sequence, made on the host: what the simulated driver fills memory with.
//
// Each value depends on the seed and its position alone, so that a fill may be made in parts.
// Thread safety: all functions may be called from any thread.

#include "runtime/driver_api.h"

#include <cstddef>
#include <cstdint>

namespace cistern {

// Writes the `count` values of a fill from its `first` on: `destination` is where that one goes.
void write_random_values(const RandomFill& fill, std::size_t first, std::size_t count, void* destination) noexcept;

}  // namespace cistern
