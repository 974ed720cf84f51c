#pragma once

// The free of host memory for doors whose frees have errors: see checked_free.h.

#include <cstddef>
#include <optional>

namespace cistern {

// Throws InvalidArgument, with nothing freed, for an address that is not a live host block's start, or a block that was
// not asked for with `bytes`. nullptr is nothing; in a forked child all is.
void deallocate_host_checked(void* pointer, std::optional<std::size_t> bytes);
// The same for managed memory.
void deallocate_managed_checked(void* pointer, std::optional<std::size_t> bytes);

}  // namespace cistern
