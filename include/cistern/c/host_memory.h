#ifndef CISTERN_C_HOST_MEMORY_H
#define CISTERN_C_HOST_MEMORY_H

/* host_allocator.h and managed_memory.h for C: a part of c_api.h, which tells the rules. */

#include <cistern/c/statistics.h>
#include <cistern/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Page-locked host memory, next to `device`, at a multiple of `alignment` (0: 64). 0 bytes: NULL. */
CISTERN_EXPORT cistern_status cistern_host_allocate(size_t bytes, size_t alignment, int device, void** pointer);
/* Give a block back; with a size, which must be that of the request. NULL is nothing. CISTERN_ERROR_INVALID_ARGUMENT
 * for another address than a live block's, or a wrong size; nothing is freed then. */
CISTERN_EXPORT cistern_status cistern_host_deallocate(void* pointer);
CISTERN_EXPORT cistern_status cistern_host_deallocate_sized(void* pointer, size_t bytes);
/* Work on `stream` uses the block: as record_host_stream, but an address that is not a live block's is
 * CISTERN_ERROR_INVALID_ARGUMENT. */
CISTERN_EXPORT cistern_status cistern_host_record_stream(void* pointer, int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_empty_host_cache(void);

typedef struct cistern_host_call_times {
  int64_t total; /* microseconds */
  int64_t max;
  int64_t min;
  int64_t count;
} cistern_host_call_times;
/* As HostMemoryStats of host_allocator.h, in its order. */
typedef struct cistern_host_memory_stats {
  size_t size;
  cistern_stat allocations;
  cistern_stat allocated_bytes;
  cistern_stat active_requests;
  cistern_stat active_bytes;
  int64_t num_host_alloc;
  int64_t num_host_free;
  cistern_host_call_times host_alloc_time;
  cistern_host_call_times host_free_time;
} cistern_host_memory_stats;
CISTERN_EXPORT cistern_status cistern_get_host_memory_stats(cistern_host_memory_stats* stats);
CISTERN_EXPORT cistern_status cistern_reset_peak_host_memory_stats(void);
CISTERN_EXPORT cistern_status cistern_reset_accumulated_host_memory_stats(void);

/* The same for managed memory. CISTERN_ERROR_NOT_SUPPORTED where the device has none. */
CISTERN_EXPORT cistern_status cistern_managed_allocate(size_t bytes, size_t alignment, int device, void** pointer);
CISTERN_EXPORT cistern_status cistern_managed_deallocate(void* pointer);
CISTERN_EXPORT cistern_status cistern_managed_deallocate_sized(void* pointer, size_t bytes);
CISTERN_EXPORT cistern_status cistern_managed_record_stream(void* pointer, int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_empty_managed_cache(void);
CISTERN_EXPORT cistern_status cistern_get_managed_memory_stats(cistern_host_memory_stats* stats);
CISTERN_EXPORT cistern_status cistern_reset_peak_managed_memory_stats(void);
CISTERN_EXPORT cistern_status cistern_reset_accumulated_managed_memory_stats(void);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_HOST_MEMORY_H */
