#pragma once

// Blocks that are still in callers' hands when a snapshot was taken, or when a part of its history ended.
//
// Thread safety: values, and functions of their arguments.

#include <cistern/snapshot.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/block_records.h"

namespace cistern {

// Which live blocks are leaked ones. Without anything all of them are: what is live at a process's end.
struct LeakScope {
  // Blocks that were allocated in a part of the history, by microseconds since the Unix epoch, both inclusive,
  // and not freed until its end; without an end, until the snapshot.
  std::optional<std::int64_t> since_us;
  std::optional<std::int64_t> until_us;
  // Or blocks that at least so many entries of their device's history are younger than.
  std::optional<std::uint64_t> older_than;
};

struct LeakedBlock {
  // Of a block that was freed after the scope's end, what its allocation's entry says: the size that was asked for
  // as both sizes, no segment, and neither kind.
  BlockRecord block;
  bool freed_later = false;
};

// The leaked blocks of each device, by device and address. A block without an entry of its allocation is older than
// the history. Throws InvalidArgument, naming `option` and what it could be, where the history does not reach
// back far enough to tell.
[[nodiscard]] std::vector<LeakedBlock> find_leaks(const Snapshot& snapshot, const LeakScope& scope,
                                                  std::string_view option);

// The last range of that name that has ended, or else the last that has begun: of `device`, if one of that name began
// there, else of any. Throws InvalidArgument naming `option`, the name and the names there are.
[[nodiscard]] LeakScope scope_of_range(const Snapshot& snapshot, std::string_view name, std::optional<int> device,
                                       std::string_view option);

}  // namespace cistern
