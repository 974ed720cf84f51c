#pragma once

// What a PoolCheckpoint holds: the blocks of every segment of a private pool, as they were.

#include <cistern/mem_pool.h>

#include "allocator/block.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

struct PoolCheckpoint::State {
  struct BlockRecord {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    bool live = false;
    StreamUses uses;
    TagId tag = kUntagged;  // of a live block
  };
  struct SegmentRecord {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    PoolKind kind = PoolKind::small;
    StreamIdentity stream;
    std::vector<BlockRecord> blocks;  // by address
  };
  PoolId pool;
  int device = 0;
  std::vector<SegmentRecord> segments;  // by address
};

}  // namespace cistern
