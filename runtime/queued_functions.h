#pragma once

// Host functions that a driver was given to run once, by number: a device that fails before their
// turn drops them and tells nobody (CUDA Driver API, cuLaunchHostFunc), and what they hold must go.
//
// Thread safety: all functions may be called from any thread. Functions are run, and
// destroyed, with no lock held.

#include <cstdint>
#include <functional>

#include "runtime/driver_api.h"

namespace cistern {

// Keeps a function for work of a device; its number is what the driver is given. `driver`: null
// for the process's own.
[[nodiscard]] std::uint64_t keep_function(const DriverApi* driver, int device, std::function<void()> function);
// Takes it out, to be run or dropped; empty if it was dropped already.
[[nodiscard]] std::function<void()> take_function(std::uint64_t number) noexcept;

// Whether an answer of the driver says that the context does no more work, for good ("Data types used by
// CUDA driver", CUresult: the errors that leave the process in an inconsistent state).
[[nodiscard]] bool ends_all_work(CUresult result) noexcept;
// Drops the functions of a device whose driver answered so; nothing after any other answer.
void drop_functions_after(CUresult result, const DriverApi* driver, int device) noexcept;

}  // namespace cistern
