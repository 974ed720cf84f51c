#pragma once

// The blocks of a snapshot beside those of the executable specification.

#include <cistern/mem_pool.h>
#include <cistern/snapshot.h>

#include <array>
#include <cstdint>
#include <functional>
#include <list>

#include "reference_allocator.h"

namespace cistern::model {

// Asserts, for RapidCheck, that both have the same segments and blocks. `offsets`: what addresses of segments, and
// those in address ranges, differ by; `id_of`: what a snapshot calls the model's pool.
void compare_blocks(Snapshot snapshot, const std::list<ModelSegment>& segments,
                    const std::array<std::uint64_t, 2>& offsets, const std::function<PoolId(int)>& id_of);

}  // namespace cistern::model
