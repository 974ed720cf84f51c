#include <cistern/host_allocator.h>

#include <fmt/format.h>

#include <optional>

#include "allocator/checked_host_free.h"
#include "integrations/c_api/status.h"
#include "integrations/c_api/versioned.h"

using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::require_struct;
using cistern::c_api::write_struct;

namespace {

cistern_stat stat_of(const cistern::Stat& stat) { return {stat.current, stat.peak, stat.allocated, stat.freed}; }
cistern_host_call_times times_of(const cistern::HostCallTimes& times) {
  return {times.total, times.max, times.min, times.count};
}

}  // namespace

cistern_status cistern_host_allocate(size_t bytes, size_t alignment, int device, void** pointer) {
  return guarded([&] {
    require(pointer, "pointer");
    *pointer = alignment == 0 ? cistern::allocate_host(bytes, device)
                              : cistern::allocate_host_aligned(bytes, alignment, device);
  });
}
cistern_status cistern_host_deallocate(void* pointer) {
  return guarded([&] { cistern::deallocate_host_checked(pointer, std::nullopt); });
}
cistern_status cistern_host_deallocate_sized(void* pointer, size_t bytes) {
  return guarded([&] { cistern::deallocate_host_checked(pointer, bytes); });
}
cistern_status cistern_host_record_stream(void* pointer, int device, cistern_stream stream) {
  return guarded([&] {
    if (pointer != nullptr && !cistern::record_host_stream(pointer, cistern::c_api::stream_of(device, stream)))
      throw cistern::InvalidArgument(
          fmt::format("{}: not the address of a live host block; nothing was done", pointer));
  });
}
cistern_status cistern_empty_host_cache() {
  return guarded([] { cistern::empty_host_cache(); });
}
cistern_status cistern_get_host_memory_stats(cistern_host_memory_stats* stats) {
  return guarded([&] {
    require_struct(stats, "stats");
    const cistern::HostMemoryStats read = cistern::host_memory_stats();
    write_struct(stats, cistern_host_memory_stats{sizeof(cistern_host_memory_stats), stat_of(read.allocations),
                                                  stat_of(read.allocated_bytes), stat_of(read.active_requests),
                                                  stat_of(read.active_bytes), read.num_host_alloc, read.num_host_free,
                                                  times_of(read.host_alloc_time), times_of(read.host_free_time)});
  });
}
cistern_status cistern_reset_peak_host_memory_stats() {
  return guarded([] { cistern::reset_peak_host_memory_stats(); });
}
cistern_status cistern_reset_accumulated_host_memory_stats() {
  return guarded([] { cistern::reset_accumulated_host_memory_stats(); });
}
