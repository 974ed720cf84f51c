#pragma once

// The search where a pool may have blocks of expandable segments beside others.

#include "allocator/block_pool.h"

namespace cistern {

// The block that serves instead of the best fit, which may be null. While segments expand, that
// with the least room to grow among those that follow by size, so that an open end stays for what
// needs it: PyTorch's order. When they do not, none of an address range.
[[nodiscard]] Block* choose_beside_ranges(const BlockPool& pool, Block* block, bool segments_expand);

}  // namespace cistern
