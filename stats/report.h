#pragma once

// The memory report: one picture of a device that adds up.

#include <cistern/stats.h>

#include <cstddef>
#include <string>

namespace cistern {

// What the report is made from, taken at one moment under the heap's lock; in bytes.
// device_total = device_free + outside + reserved_bytes, and
// reserved_bytes = allocated_bytes + pending + free_split + free_whole + free_private (of `stats`: all.current).
struct MemoryReport {
  int device = 0;
  std::string device_name;
  std::size_t device_total_bytes = 0;
  std::size_t device_free_bytes = 0;
  std::size_t outside_bytes = 0;  // in use on the device, but not held by this allocator
  MemoryStats stats;
  std::size_t pending_bytes = 0;            // block sizes of freed blocks that other streams await
  std::size_t pending_requested_bytes = 0;  // what callers had asked for, of those blocks
  std::size_t free_split_bytes = 0;         // free, in segments that are partly in use
  std::size_t free_whole_bytes = 0;         // free, in segments that are wholly free
  std::size_t free_private_bytes = 0;       // free, in private pools
  std::size_t largest_free_block_bytes = 0;
};

// One line for each part with its bytes, its share of the device and what it is, their sum,
// and the figures that matter: held over live, the peaks, the largest free block.
[[nodiscard]] std::string format_report(const MemoryReport& report);

}  // namespace cistern
