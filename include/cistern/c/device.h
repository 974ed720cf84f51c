#ifndef CISTERN_C_DEVICE_H
#define CISTERN_C_DEVICE_H

/* device.h, stream.h, event.h and memory.h for C: a part of c_api.h, which tells the rules. */

#include <cistern/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

CISTERN_EXPORT cistern_status cistern_initialize(void);
CISTERN_EXPORT cistern_status cistern_device_count(int* count);
CISTERN_EXPORT cistern_status cistern_current_device(int* device);
CISTERN_EXPORT cistern_status cistern_set_device(int device);
CISTERN_EXPORT cistern_status cistern_synchronize(int device);
CISTERN_EXPORT cistern_status cistern_memory_info(int device, size_t* free_bytes, size_t* total_bytes);

/* --- Streams -------------------------------------------------------------------------------- */

typedef struct cistern_stream_options {
  size_t size;
  int priority; /* lower is higher; 0 is the default */
  int blocking; /* not 0: synchronises with the legacy default stream */
} cistern_stream_options;

/* A new stream of the driver, the caller's until it is destroyed; `options` may be NULL. Destroying is safe at any
 * time: queued work completes, and memory that was cached for the stream serves others. The handle must not be used
 * afterwards. CISTERN_ERROR_INVALID_ARGUMENT for one that cistern_stream_create did not make. */
CISTERN_EXPORT cistern_status cistern_stream_create(int device, const cistern_stream_options* options,
                                                    cistern_stream* stream);
CISTERN_EXPORT cistern_status cistern_stream_destroy(cistern_stream stream);
/* One of the device's pool, which is nobody's to destroy. */
CISTERN_EXPORT cistern_status cistern_stream_from_pool(int device, const cistern_stream_options* options,
                                                       cistern_stream* stream);
CISTERN_EXPORT cistern_status cistern_current_stream(int device, cistern_stream* stream);
/* Makes it the current one of its device, and that device the current one, of the calling thread. */
CISTERN_EXPORT cistern_status cistern_set_stream(int device, cistern_stream stream);
/* CISTERN_ERROR_NOT_READY while work is under way. */
CISTERN_EXPORT cistern_status cistern_stream_query(int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_stream_synchronize(int device, cistern_stream stream);
/* Later work on `stream` waits for all work that is now on `other`. */
CISTERN_EXPORT cistern_status cistern_stream_wait_stream(int device, cistern_stream stream, int other_device,
                                                         cistern_stream other);

/* --- Events --------------------------------------------------------------------------------- */

typedef struct cistern_event_options {
  size_t size;
  int enable_timing;
  int blocking;
} cistern_event_options;

/* The caller's until it is destroyed; NULL is nothing to destroy. `options` may be NULL. */
typedef struct cistern_event cistern_event;
CISTERN_EXPORT cistern_status cistern_event_create(const cistern_event_options* options, cistern_event** event);
CISTERN_EXPORT void cistern_event_destroy(cistern_event* event);
CISTERN_EXPORT cistern_status cistern_event_record(cistern_event* event, int device, cistern_stream stream);
/* CISTERN_ERROR_NOT_READY while the work before it is under way. */
CISTERN_EXPORT cistern_status cistern_event_query(const cistern_event* event);
CISTERN_EXPORT cistern_status cistern_event_synchronize(const cistern_event* event);
/* Later work on `stream` waits for the event. */
CISTERN_EXPORT cistern_status cistern_event_wait(const cistern_event* event, int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_event_elapsed_time(const cistern_event* start, const cistern_event* end,
                                                         float* milliseconds);

/* --- Copies and fills ------------------------------------------------------------------------- */

CISTERN_EXPORT cistern_status cistern_copy_async(void* destination, const void* source, size_t bytes, int device,
                                                 cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_fill_async(void* destination, unsigned char value, size_t bytes, int device,
                                                 cistern_stream stream);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_DEVICE_H */
