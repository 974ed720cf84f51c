#pragma once

// The memory report: one picture of a device that adds up, whose it is, and what would help.

#include <cistern/stats.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cistern {

// Owners that a report names, with all others together as the last of them.
inline constexpr std::size_t kReportedOwners = 10;
// What a name may take; a stream's is "  stream " and a handle of 64 bits.
inline constexpr std::size_t kReportedNameColumns = 27;

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

  std::vector<StreamStats> streams;
  std::vector<HandOverStats> hand_overs;
  std::optional<PendingFree> oldest_pending_free;
  std::chrono::steady_clock::time_point now;  // what its age is reckoned to
  std::vector<TagStats> tags;
  // Live blocks by the stack that allocated them, where history knows it.
  struct Owner {
    std::string name;
    std::int64_t bytes = 0;
    std::int64_t blocks = 0;
    std::optional<std::int64_t> at_peak_bytes = {};  // when the device had its peak
    std::string place = {};                          // of the call, "train.cpp:42"
    std::string callers = {};                        // "step, train, main"
  };
  std::vector<Owner> stacks;  // of the largest kReportedOwners, others may have no name

  // What is in force: it decides what would help.
  std::optional<std::size_t> limit_bytes;  // of the memory fraction
  bool gives_back_pages = false;           // of partly used segments, as expandable ones do
  bool rounds_by_divisions = false;        // roundup_power2_divisions
};

// ASCII of at most 110 columns: a line for each part with its bytes, its size, its share of the
// device and what it is, and their sum; the figures that matter; the ten largest owners by tag and
// by stack, where there are any; and what would help, where something would.
[[nodiscard]] std::string format_report(const MemoryReport& report);

}  // namespace cistern
