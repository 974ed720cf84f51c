#ifndef CISTERN_C_STATISTICS_H
#define CISTERN_C_STATISTICS_H

/* stats.h, scope.h, history.h and snapshot.h for C: a part of c_api.h, which tells the rules. */

#include <cistern/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cistern_stat {
  int64_t current;
  int64_t peak;
  int64_t allocated;
  int64_t freed;
} cistern_stat;
typedef struct cistern_pool_stat {
  cistern_stat all;
  cistern_stat small_pool;
  cistern_stat large_pool;
} cistern_pool_stat;
/* As MemoryStats of stats.h, in its order. */
typedef struct cistern_memory_stats {
  size_t size;
  cistern_pool_stat allocation;
  cistern_pool_stat segment;
  cistern_pool_stat active;
  cistern_pool_stat inactive_split;
  cistern_pool_stat allocated_bytes;
  cistern_pool_stat reserved_bytes;
  cistern_pool_stat active_bytes;
  cistern_pool_stat inactive_split_bytes;
  cistern_pool_stat requested_bytes;
  cistern_stat oversize_allocations;
  cistern_stat oversize_segments;
  int64_t num_alloc_retries;
  int64_t num_ooms;
  int64_t num_sync_all_streams;
  int64_t num_device_alloc;
  int64_t num_device_free;
  int64_t max_split_size;
} cistern_memory_stats;

CISTERN_EXPORT cistern_status cistern_get_memory_stats(int device, cistern_memory_stats* stats);
CISTERN_EXPORT cistern_status cistern_memory_allocated(int device, size_t* bytes);
CISTERN_EXPORT cistern_status cistern_max_memory_allocated(int device, size_t* bytes);
CISTERN_EXPORT cistern_status cistern_memory_reserved(int device, size_t* bytes);
CISTERN_EXPORT cistern_status cistern_max_memory_reserved(int device, size_t* bytes);
CISTERN_EXPORT cistern_status cistern_reset_peak_memory_stats(int device);
CISTERN_EXPORT cistern_status cistern_reset_accumulated_memory_stats(int device);
/* Texts are written as cistern_list_gpu_processes does. */
CISTERN_EXPORT cistern_status cistern_memory_summary(int device, int abbreviated, char* text, size_t bytes,
                                                     size_t* needed);
CISTERN_EXPORT cistern_status cistern_memory_report(int device, char* text, size_t bytes, size_t* needed);

/* --- Scopes, tags, budgets ---------------------------------------------------------------------- */

/* A PeakScope: the caller's until it is destroyed, which ends it; NULL is nothing. */
typedef struct cistern_peak_scope cistern_peak_scope;
CISTERN_EXPORT cistern_status cistern_peak_scope_create(int device, cistern_peak_scope** scope);
CISTERN_EXPORT void cistern_peak_scope_destroy(cistern_peak_scope* scope);
CISTERN_EXPORT void cistern_peak_scope_stop(cistern_peak_scope* scope);
CISTERN_EXPORT cistern_status cistern_peak_scope_stats(const cistern_peak_scope* scope, cistern_memory_stats* stats);

/* A TagScope of the calling thread, which ends it; NULL is nothing. A name of NULL is no tag. */
typedef struct cistern_tag_scope cistern_tag_scope;
CISTERN_EXPORT cistern_status cistern_tag_scope_begin(const char* name, cistern_tag_scope** scope);
CISTERN_EXPORT void cistern_tag_scope_end(cistern_tag_scope* scope);
/* The statistics of one tag of a device, all 0 if it has none; NULL: of what was allocated outside of every tag. */
typedef struct cistern_tag_stats {
  size_t size;
  cistern_stat allocation;
  cistern_stat allocated_bytes;
  int64_t at_device_peak_bytes;
} cistern_tag_stats;
CISTERN_EXPORT cistern_status cistern_get_tag_stats(int device, const char* name, cistern_tag_stats* stats);

typedef struct cistern_budget_options {
  size_t size;
  int device;
  const char* tag;   /* NULL: the whole device */
  size_t soft_bytes; /* 0: no soft limit */
  size_t hard_bytes; /* 0: no hard limit */
  /* Called when soft_bytes is passed, with no lock held, on the thread of the request. */
  void (*on_soft)(const char* tag, int device, size_t live_bytes, void* user_data);
  void* user_data;
} cistern_budget_options;
/* A Budget: in force until it is destroyed; NULL is nothing. */
typedef struct cistern_budget cistern_budget;
CISTERN_EXPORT cistern_status cistern_budget_create(const cistern_budget_options* options, cistern_budget** budget);
CISTERN_EXPORT void cistern_budget_destroy(cistern_budget* budget);

/* --- History and snapshots ------------------------------------------------------------------------ */

/* As HistoryEnabled and HistoryContext of history.h. */
enum { CISTERN_HISTORY_NONE, CISTERN_HISTORY_STATE, CISTERN_HISTORY_ALL };
enum { CISTERN_CONTEXT_NONE, CISTERN_CONTEXT_STATE, CISTERN_CONTEXT_ALLOC, CISTERN_CONTEXT_ALL };
typedef struct cistern_history_options {
  size_t size;
  int enabled;
  int context;
  size_t max_entries;     /* 0: unlimited */
  size_t max_frames;      /* 0: 64 */
  size_t max_stack_bytes; /* 0: 64 MiB */
  int clear_history;
} cistern_history_options;
CISTERN_EXPORT cistern_status cistern_record_history(const cistern_history_options* options);
CISTERN_EXPORT cistern_status cistern_set_user_metadata(const char* text);
CISTERN_EXPORT cistern_status cistern_annotate(void* pointer, const char* text);

enum {
  CISTERN_SNAPSHOT_JSON,      /* write_json */
  CISTERN_SNAPSHOT_PICKLE,    /* write_pickle, protocol 4 */
  CISTERN_SNAPSHOT_TORCH_JSON /* write_torch_json */
};
CISTERN_EXPORT cistern_status cistern_write_snapshot(const char* path, int format);
/* Gets the snapshot piece by piece, in order; not 0 ends it with CISTERN_ERROR_CANCELLED. It must not throw. */
typedef int (*cistern_snapshot_writer)(const void* bytes, size_t count, void* user_data);
CISTERN_EXPORT cistern_status cistern_send_snapshot(cistern_snapshot_writer writer, void* user_data, int format);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_STATISTICS_H */
