#pragma once

// Page-locked ("pinned") host memory, kept when it is given back, so that most requests never reach the driver.
//
// A block belongs to no stream: what is freed may be given to any thread at once, which the host may write at once.
// Copies that were queued on streams by then are told by record_host_stream: the block is used again only after they
// are done. A block that a captured graph uses is used again only after the graph, what was instantiated of it and
// their launches have ended.
//
// Blocks are less than an eighth larger than what was asked for (below 512 bytes: at most 63 bytes larger), above
// 1 MiB less than a page of 4 KiB; when the driver has no more, some have whole pages. They are aligned to 64 bytes,
// above 1 MiB to a page, and page-locked for all devices' contexts; every device reaches them at the host's address.
// The functions act on one heap of the process; a CachingAllocator has one of its own.
// Thread safety: any function may be called from any thread. Units: bytes.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stats.h>
#include <cistern/stream.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace cistern {

// Memory that the host and all devices reach, in any order with work that is queued; uninitialised. 0 bytes: nullptr.
// What has to come from the driver comes from the NUMA node next to `device`. Touches no stream.
// Cost: no driver call where a cached block serves; an event query for each stream that freed blocks wait for.
// Throws OutOfMemoryError, whose report has device -1 and no device's figures, when the driver refuses after all that
// is cached went back; DriverError. Either way nothing has changed but what was cached.
[[nodiscard]] CISTERN_EXPORT void* allocate_host(std::size_t bytes, Device device = {});
// The same at an address that is a multiple of `alignment`, a power of two and at most 4096: else InvalidArgument.
// Above 64, the block has whole pages.
[[nodiscard]] CISTERN_EXPORT void* allocate_host_aligned(std::size_t bytes, std::size_t alignment, Device device = {});

// Gives a block back; nullptr is nothing. Never throws, and waits only where no event can guard the free: after a use
// on another thread's per-thread default stream or a destroyed one; not in a capture that a pool was begun for. What is
// not a live block's start changes nothing and is told on standard error. In a forked child it does nothing.
CISTERN_EXPORT void deallocate_host(void* pointer) noexcept;
// As deallocate_host, of a block that was asked for with exactly `bytes`: else nothing is freed, and standard error
// says so.
CISTERN_EXPORT void deallocate_host_sized(void* pointer, std::size_t bytes) noexcept;

// Tells that work on `stream`, queued by the block's free, reads or writes it. False, with nothing done, if no live
// block begins at `pointer`. Throws InvalidArgument for a stream of another driver, DriverError where a capture's graph
// cannot keep the block.
CISTERN_EXPORT bool record_host_stream(void* pointer, const Stream& stream);

// Waits for what streams still do with freed blocks, then gives all that is wholly free back to the driver: the device
// caches stay as they are, and empty_cache leaves this one. Blocks the host. Throws DriverError; what the driver
// refuses to take stays cached.
CISTERN_EXPORT void empty_host_cache();

// How long calls took, in microseconds.
struct HostCallTimes {
  std::int64_t total = 0;
  std::int64_t max = 0;
  std::int64_t min = 0;
  std::int64_t count = 0;
  [[nodiscard]] std::int64_t avg() const noexcept { return count == 0 ? 0 : total / count; }
};

// As torch.cuda.host_memory_stats: `allocations` are the pieces held from the driver, in use and cached;
// `active_requests` the blocks handed out, until they can be used again. Peaks are exact.
struct CISTERN_EXPORT HostMemoryStats {
  Stat allocations;
  Stat allocated_bytes;  // of those pieces
  Stat active_requests;
  Stat active_bytes;  // of those blocks
  std::int64_t num_host_alloc = 0;
  std::int64_t num_host_free = 0;
  HostCallTimes host_alloc_time;
  HostCallTimes host_free_time;

  // The keys of PyTorch, in plain string order; and the same as nested maps.
  [[nodiscard]] std::map<std::string, std::int64_t> flat() const;
  [[nodiscard]] NestedStats nested() const;
};

[[nodiscard]] CISTERN_EXPORT HostMemoryStats host_memory_stats();
// Empty before cistern is initialised.
[[nodiscard]] CISTERN_EXPORT std::map<std::string, std::int64_t> host_memory_stats_flat();
[[nodiscard]] CISTERN_EXPORT NestedStats host_memory_stats_as_nested_dict();
// Every peak becomes the current value, and the calls' shortest and longest times 0.
CISTERN_EXPORT void reset_peak_host_memory_stats();
// `allocated` and `freed`, the counts of calls and their total times become 0.
CISTERN_EXPORT void reset_accumulated_host_memory_stats();

}  // namespace cistern
