#include <cistern/host_allocator.h>
#include <cistern/managed_memory.h>

#include <fmt/format.h>

#include <optional>

#include "allocator/checked_host_free.h"
#include "integrations/c_api/stat.h"
#include "integrations/c_api/status.h"
#include "integrations/c_api/versioned.h"

using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::require_struct;
using cistern::c_api::stat_of;
using cistern::c_api::write_struct;

namespace {

cistern_host_call_times times_of(const cistern::HostCallTimes& times) {
  return {times.total, times.max, times.min, times.count};
}

cistern_host_memory_stats stats_of(const cistern::HostMemoryStats& stats) {
  return {sizeof(cistern_host_memory_stats),
          stat_of(stats.allocations),
          stat_of(stats.allocated_bytes),
          stat_of(stats.active_requests),
          stat_of(stats.active_bytes),
          stats.num_host_alloc,
          stats.num_host_free,
          times_of(stats.host_alloc_time),
          times_of(stats.host_free_time)};
}

void require_recorded(bool is_recorded, const void* pointer, const char* block) {
  if (!is_recorded)
    throw cistern::InvalidArgument(
        fmt::format("{}: not the address of a live {} block; nothing was done", pointer, block));
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
    if (pointer != nullptr)
      require_recorded(cistern::record_host_stream(pointer, cistern::c_api::stream_of(device, stream)), pointer,
                       "host");
  });
}
cistern_status cistern_empty_host_cache() {
  return guarded([] { cistern::empty_host_cache(); });
}
cistern_status cistern_get_host_memory_stats(cistern_host_memory_stats* stats) {
  return guarded([&] {
    require_struct(stats, "stats");
    write_struct(stats, stats_of(cistern::host_memory_stats()));
  });
}
cistern_status cistern_reset_peak_host_memory_stats() {
  return guarded([] { cistern::reset_peak_host_memory_stats(); });
}
cistern_status cistern_reset_accumulated_host_memory_stats() {
  return guarded([] { cistern::reset_accumulated_host_memory_stats(); });
}

cistern_status cistern_managed_allocate(size_t bytes, size_t alignment, int device, void** pointer) {
  return guarded([&] {
    require(pointer, "pointer");
    *pointer = alignment == 0 ? cistern::allocate_managed(bytes, device)
                              : cistern::allocate_managed_aligned(bytes, alignment, device);
  });
}
cistern_status cistern_managed_deallocate(void* pointer) {
  return guarded([&] { cistern::deallocate_managed_checked(pointer, std::nullopt); });
}
cistern_status cistern_managed_deallocate_sized(void* pointer, size_t bytes) {
  return guarded([&] { cistern::deallocate_managed_checked(pointer, bytes); });
}
cistern_status cistern_managed_record_stream(void* pointer, int device, cistern_stream stream) {
  return guarded([&] {
    if (pointer != nullptr)
      require_recorded(cistern::record_managed_stream(pointer, cistern::c_api::stream_of(device, stream)), pointer,
                       "managed");
  });
}
cistern_status cistern_empty_managed_cache() {
  return guarded([] { cistern::empty_managed_cache(); });
}
cistern_status cistern_get_managed_memory_stats(cistern_host_memory_stats* stats) {
  return guarded([&] {
    require_struct(stats, "stats");
    write_struct(stats, stats_of(cistern::managed_memory_stats()));
  });
}
cistern_status cistern_reset_peak_managed_memory_stats() {
  return guarded([] { cistern::reset_peak_managed_memory_stats(); });
}
cistern_status cistern_reset_accumulated_managed_memory_stats() {
  return guarded([] { cistern::reset_accumulated_managed_memory_stats(); });
}
