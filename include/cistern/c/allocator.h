#ifndef CISTERN_C_ALLOCATOR_H
#define CISTERN_C_ALLOCATOR_H

/* allocator.h, mem_pool.h and options.h for C: a part of c_api.h, which tells the rules. */

#include <cistern/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory for work on `stream` of `device` from now on. 0 bytes: NULL. */
CISTERN_EXPORT cistern_status cistern_allocate(size_t bytes, int device, cistern_stream stream, void** pointer);
/* The same at a multiple of `alignment`, a power of two and at most 512. */
CISTERN_EXPORT cistern_status cistern_allocate_aligned(size_t bytes, size_t alignment, int device,
                                                       cistern_stream stream, void** pointer);
/* Give a block back, in order on its own stream; with a stream, that it was last used on; with a size, which must be
 * that of the request. NULL is nothing. CISTERN_ERROR_INVALID_ARGUMENT for another address than a live block's, a
 * wrong size, or a stream that is none; nothing is freed then. A second free of a block by another thread than the
 * first's may be told on standard error instead. Never waits for the device, but where deallocate of C++ does. */
CISTERN_EXPORT cistern_status cistern_deallocate(void* pointer);
CISTERN_EXPORT cistern_status cistern_deallocate_on(void* pointer, int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_deallocate_sized(void* pointer, size_t bytes, int device, cistern_stream stream);
/* As in C++, but an address that is not a live block's is CISTERN_ERROR_INVALID_ARGUMENT. */
CISTERN_EXPORT cistern_status cistern_record_stream(void* pointer, int device, cistern_stream stream);
/* Promises that a stream of another maker than cistern is not destroyed before cistern_release_stream names it: the
 * calls above then ask the driver nothing where they are given its handle. See register_stream of C++. */
CISTERN_EXPORT cistern_status cistern_register_stream(int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_release_stream(int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_empty_cache(void);
/* `released` may be NULL. */
CISTERN_EXPORT cistern_status cistern_trim(size_t target_bytes, int device, size_t* released);
CISTERN_EXPORT cistern_status cistern_set_memory_fraction(double fraction, int device);
CISTERN_EXPORT cistern_status cistern_memory_fraction(int device, double* fraction);
CISTERN_EXPORT cistern_status cistern_set_options(const char* text);
/* Texts are written as cistern_list_gpu_processes does. */
CISTERN_EXPORT cistern_status cistern_effective_config(char* text, size_t bytes, size_t* needed);

/* --- Out of memory, observers ----------------------------------------------------------------- */

/* As OutOfMemoryCause of error.h, in its order. */
enum {
  CISTERN_OOM_DEVICE_FULL,
  CISTERN_OOM_FRAGMENTED,
  CISTERN_OOM_LIMIT,
  CISTERN_OOM_PENDING_FREES,
  CISTERN_OOM_DRIVER_REFUSAL,
  CISTERN_OOM_TOO_LARGE,
  CISTERN_OOM_GRAPH_POOLS,
  CISTERN_OOM_ADDRESS_SPACE
};
/* As OutOfMemoryReport of error.h: it adds up as that does. */
typedef struct cistern_out_of_memory_report {
  size_t size;
  int device;
  int cause;
  size_t requested_bytes;
  size_t rounded_bytes;
  size_t segment_bytes;
  size_t device_total_bytes;
  size_t device_free_bytes;
  size_t outside_bytes;
  size_t limit_bytes; /* SIZE_MAX: none */
  size_t reserved_bytes;
  size_t allocated_bytes;
  size_t pending_free_bytes;
  size_t free_split_bytes;
  size_t free_whole_bytes;
  size_t private_pools_free_bytes;
  size_t largest_free_block_bytes;
  int has_device_figures;
  char advice[324]; /* the option or step that would have helped; "" if none would */
} cistern_out_of_memory_report;

/* Of this thread's latest request of C that a device had no memory for: CISTERN_ERROR_NOT_READY if there was none. */
CISTERN_EXPORT cistern_status cistern_last_out_of_memory(cistern_out_of_memory_report* report);

/* Called with no lock held, on the thread of the request; they may call back. They must not throw. */
typedef void (*cistern_out_of_memory_observer)(const cistern_out_of_memory_report* report, void* user_data);
/* Not 0: some memory was given back. */
typedef int (*cistern_free_memory_callback)(int device, size_t bytes, void* user_data);
CISTERN_EXPORT cistern_status cistern_add_out_of_memory_observer(cistern_out_of_memory_observer observer,
                                                                 void* user_data, uint64_t* id);
CISTERN_EXPORT cistern_status cistern_add_free_memory_callback(cistern_free_memory_callback callback, void* user_data,
                                                               uint64_t* id);
/* A call that is under way may still end after this. CISTERN_ERROR_INVALID_ARGUMENT for an id that is none. */
CISTERN_EXPORT cistern_status cistern_remove_observer(uint64_t id);

/* --- Pools ------------------------------------------------------------------------------------ */

typedef struct cistern_pool_options {
  size_t size;
  int device;
  int use_on_oom;
  int no_split;
  const char* name; /* NULL: none */
} cistern_pool_options;

/* A MemPool: the caller's until it is destroyed; NULL is nothing to destroy. `options` may be NULL: the current
 * device's. Its blocks are freed as all others are. */
typedef struct cistern_pool cistern_pool;
CISTERN_EXPORT cistern_status cistern_pool_create(const cistern_pool_options* options, cistern_pool** pool);
CISTERN_EXPORT void cistern_pool_destroy(cistern_pool* pool);
CISTERN_EXPORT cistern_status cistern_pool_allocate(const cistern_pool* pool, size_t bytes, int device,
                                                    cistern_stream stream, void** pointer);
CISTERN_EXPORT cistern_status cistern_pool_trim(const cistern_pool* pool, size_t* released);
/* Until its end, requests of this thread on the pool's device come from the pool. To be ended by the same thread, the
 * innermost first. */
typedef struct cistern_pool_scope cistern_pool_scope;
CISTERN_EXPORT cistern_status cistern_pool_scope_begin(const cistern_pool* pool, cistern_pool_scope** scope);
CISTERN_EXPORT void cistern_pool_scope_end(cistern_pool_scope* scope);

/* The primitives below: see begin_allocate_to_pool in mem_pool.h. */
typedef struct cistern_pool_id {
  uint64_t first;
  uint64_t second;
} cistern_pool_id;
CISTERN_EXPORT cistern_pool_id cistern_capture_pool_id(void);
CISTERN_EXPORT cistern_pool_id cistern_graph_pool_handle(void);
/* `stream`: whose requests the pool takes; NULL: those of this thread. */
CISTERN_EXPORT cistern_status cistern_begin_allocate_to_pool(int device, cistern_pool_id id,
                                                             const cistern_stream* stream);
CISTERN_EXPORT cistern_status cistern_end_allocate_to_pool(int device, cistern_pool_id id);
CISTERN_EXPORT cistern_status cistern_release_pool(int device, cistern_pool_id id);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_ALLOCATOR_H */
