#ifndef CISTERN_C_IPC_H
#define CISTERN_C_IPC_H

/* ipc.h for C: a part of c_api.h, which tells the rules and has cistern_ipc_collect. */

#include <cistern/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Handles: bytes that name memory, and travel in any way -------------------------------------- */

enum { CISTERN_MEMORY_HANDLE_BYTES = 148 };
/* `bytes` is the room at `handle`, CISTERN_MEMORY_HANDLE_BYTES: any other is CISTERN_ERROR_INVALID_ARGUMENT. */
CISTERN_EXPORT cistern_status cistern_ipc_handle(const void* pointer, void* handle, size_t bytes);
/* A live block, to be opened by `receivers` processes, and kept until they are done. */
CISTERN_EXPORT cistern_status cistern_send_memory(void* block, int receivers, void* handle, size_t bytes);
CISTERN_EXPORT cistern_status cistern_recall_memory(const void* handle, size_t bytes);

/* As IpcCounts of ipc.h, in its order. */
typedef struct cistern_ipc_counts {
  size_t size;
  size_t handles;
  size_t receivers;
  size_t blocks;
  size_t waiting;
  size_t bytes;
  int has_file;
} cistern_ipc_counts;
CISTERN_EXPORT cistern_status cistern_get_ipc_counts(cistern_ipc_counts* counts);

/* --- Memory of another process ------------------------------------------------------------------- */

/* Mapped here until it is released or destroyed; NULL is nothing to destroy. */
typedef struct cistern_ipc_memory cistern_ipc_memory;
/* `device`: for whose work; CISTERN_CURRENT_DEVICE: of the device that the memory is on. */
CISTERN_EXPORT cistern_status cistern_open_ipc(const void* handle, size_t bytes, int device,
                                               cistern_ipc_memory** memory);
CISTERN_EXPORT void* cistern_ipc_memory_data(const cistern_ipc_memory* memory);
CISTERN_EXPORT size_t cistern_ipc_memory_size(const cistern_ipc_memory* memory);
/* Waits for the work of `stream`, tells the sender and destroys it; after a failure it is there still. */
CISTERN_EXPORT cistern_status cistern_ipc_memory_release(cistern_ipc_memory* memory, int device, cistern_stream stream);
/* Waits for the device's current stream alone. */
CISTERN_EXPORT void cistern_ipc_memory_destroy(cistern_ipc_memory* memory);

/* --- Descriptors: send_fd and receive_fd of ipc.h are SCM_RIGHTS with one byte ---------------------- */

/* The descriptor is the caller's to close. */
CISTERN_EXPORT cistern_status cistern_export_fd(const void* pointer, int* descriptor);
/* `bytes`: the whole size of what was exported. The descriptor stays the caller's. */
CISTERN_EXPORT cistern_status cistern_import_fd(int descriptor, size_t bytes, int device, cistern_ipc_memory** memory);

/* A block that lies in physical pieces of one size: see SharedRange of ipc.h. */
typedef struct cistern_shared_range {
  size_t size;
  size_t pieces; /* as many descriptors */
  size_t piece_bytes;
  size_t offset;
  size_t bytes;
} cistern_shared_range;
/* `room` is that for descriptors at `descriptors`, which are the caller's to close. Where it is less than
 * range->pieces tells, none is made; `descriptors` may be NULL where it is 0. */
CISTERN_EXPORT cistern_status cistern_export_range(void* block, int* descriptors, size_t room,
                                                   cistern_shared_range* range);
CISTERN_EXPORT cistern_status cistern_import_range(const int* descriptors, const cistern_shared_range* range,
                                                   int device, cistern_ipc_memory** memory);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_IPC_H */
