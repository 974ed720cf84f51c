#pragma once

// What the objects of cistern/host_memory.h have in common.

#include <cistern/device.h>

#include <cstddef>

namespace cistern {

// See PinnedMemory::device_pointer. `mapped`: as its options say. Thread safety: any thread.
[[nodiscard]] void* mapped_address(void* pointer, std::size_t bytes, bool mapped, Device device);

}  // namespace cistern
