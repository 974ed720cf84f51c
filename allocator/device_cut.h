#pragma once

// DeviceCut: one device's heap as it was at one moment, copied under its lock and described later.

#include <cistern/snapshot.h>

#include "stats/history.h"
#include "stats/snapshot_stacks.h"

#include <cstddef>
#include <vector>

namespace cistern {

struct DeviceCut {
  // What it takes: for memory to be there before the lock is taken.
  struct Size {
    std::size_t segments = 0;
    std::size_t blocks = 0;
    DeviceHistory::Size history;
  };
  // Throws std::bad_alloc.
  void reserve(const Size& size);
  [[nodiscard]] bool has_room_for(const Size& size) const;
  // Moves all of it into `snapshot`, as the next device's. The lock is not needed.
  void move_to(Snapshot& snapshot, SnapshotStacks& stacks, const TickClock& clock);

  std::vector<SegmentInfo> segments;  // without their blocks
  std::vector<std::size_t> ends;      // of each segment's blocks
  std::vector<BlockInfo> blocks;      // stacks and tags by the heap's numbers - 1
  MemoryStats stats;
  DeviceHistory::Copy history;
};

}  // namespace cistern
