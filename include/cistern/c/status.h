#ifndef CISTERN_C_STATUS_H
#define CISTERN_C_STATUS_H

/* Statuses, errors in words, and the rules of versions: a part of c_api.h, which tells the rest. */

#include <cistern/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of these headers. It is raised when a function, a value or a layout changes; tests/c_api has the list of each. */
#define CISTERN_C_API_VERSION 1
/* Of the library that the program runs with: at least that of the headers that it was compiled with. */
CISTERN_EXPORT int cistern_c_api_version(void);
/* "0.1.0" */
CISTERN_EXPORT const char* cistern_version(void);

/*
 * Structs that may grow begin with their size, which the caller sets to sizeof: CISTERN_STRUCT(cistern_memory_stats,
 * stats) declares one so, and all else 0. A library that knows more members writes and reads those that the caller has;
 * one that knows fewer writes those, with `size` what it wrote, and takes members that it does not know if they are 0:
 * else CISTERN_ERROR_NOT_SUPPORTED. A size below that of the first version is CISTERN_ERROR_INVALID_ARGUMENT.
 */
#ifdef __cplusplus
#define CISTERN_STRUCT(type, name) \
  type name = type();              \
  name.size = sizeof(type)
#else
#define CISTERN_STRUCT(type, name) type name = {.size = sizeof(type)}
#endif

enum {
  CISTERN_SUCCESS = 0,
  CISTERN_ERROR_INVALID_ARGUMENT = 1,
  CISTERN_ERROR_NOT_SUPPORTED = 2,
  CISTERN_ERROR_NOT_READY = 3,
  CISTERN_ERROR_OUT_OF_MEMORY = 4, /* of the device, or of the host */
  CISTERN_ERROR_DRIVER = 5,
  CISTERN_ERROR_LIBRARY = 6, /* cuRAND, cuBLAS or NCCL */
  CISTERN_ERROR_UNKNOWN = 7,
  CISTERN_ERROR_CANCELLED = 8 /* a callback of the caller's asked for it */
};
typedef int cistern_status;

/* What went wrong in this thread's latest call that failed, in words: "" if none has. Valid until the
 * next one fails. */
CISTERN_EXPORT const char* cistern_last_error(void);
/* "CISTERN_ERROR_NOT_READY"; of no status, "CISTERN_ERROR_UNKNOWN". */
CISTERN_EXPORT const char* cistern_status_name(cistern_status status);

enum { CISTERN_CURRENT_DEVICE = -1 };
typedef struct CUstream_st* cistern_stream;

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_STATUS_H */
