#ifndef CISTERN_C_API_H
#define CISTERN_C_API_H

/*
 * cistern for C: random numbers, marks for profilers, the cuBLAS handle and PyTorch's other names. Each
 * function is that of the C++ header of its section, without the prefix; what it does stands there.
 *
 * Every function but those that cannot fail returns a status: CISTERN_SUCCESS, or what went wrong, and
 * then nothing was done, and nothing is written to its results. Nothing is thrown across this border.
 * A device is an index; CISTERN_CURRENT_DEVICE is the calling thread's. A stream is the driver's handle
 * (CUstream, or cudaStream_t), on the device that is given with it; NULL is the default stream.
 * Pointers to results must not be NULL; strings are read during the call alone, and may be NULL for "".
 * Thread safety: any function may be called from any thread.
 */

#include <cistern/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  CISTERN_SUCCESS = 0,
  CISTERN_ERROR_INVALID_ARGUMENT = 1,
  CISTERN_ERROR_NOT_SUPPORTED = 2,
  CISTERN_ERROR_NOT_READY = 3,
  CISTERN_ERROR_OUT_OF_MEMORY = 4, /* of the device, or of the host */
  CISTERN_ERROR_DRIVER = 5,
  CISTERN_ERROR_LIBRARY = 6, /* cuRAND or cuBLAS */
  CISTERN_ERROR_UNKNOWN = 7
};
typedef int cistern_status;

/* What went wrong in this thread's latest call that failed, in words: "" if none has. Valid until the
 * next one fails. */
CISTERN_EXPORT const char* cistern_last_error(void);

enum { CISTERN_CURRENT_DEVICE = -1 };
typedef struct CUstream_st* cistern_stream;

/* --- random.h ------------------------------------------------------------------------------- */

enum { CISTERN_RNG_STATE_BYTES = 16 };

/* `bytes` is the room at `state`, CISTERN_RNG_STATE_BYTES; for the states of all devices, in the order of
 * their indices, it is so for each of them. Any other is CISTERN_ERROR_INVALID_ARGUMENT. */
CISTERN_EXPORT cistern_status cistern_get_rng_state(int device, void* state, size_t bytes);
CISTERN_EXPORT cistern_status cistern_get_rng_state_all(void* states, size_t bytes);
CISTERN_EXPORT cistern_status cistern_set_rng_state(int device, const void* state, size_t bytes);
CISTERN_EXPORT cistern_status cistern_set_rng_state_all(const void* states, size_t bytes);
CISTERN_EXPORT cistern_status cistern_manual_seed(uint64_t seed);
CISTERN_EXPORT cistern_status cistern_manual_seed_all(uint64_t seed);
CISTERN_EXPORT cistern_status cistern_seed(void);
CISTERN_EXPORT cistern_status cistern_seed_all(void);
CISTERN_EXPORT cistern_status cistern_initial_seed(uint64_t* seed);
CISTERN_EXPORT cistern_status cistern_fill_random_words(uint32_t* destination, size_t count, int device,
                                                        cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_fill_uniform(float* destination, size_t count, int device, cistern_stream stream);
CISTERN_EXPORT cistern_status cistern_fill_normal(float* destination, size_t count, float mean,
                                                  float standard_deviation, int device, cistern_stream stream);

/* --- nvtx.h --------------------------------------------------------------------------------- */

/* These cannot fail; push and pop return a depth. */
CISTERN_EXPORT void cistern_nvtx_mark(const char* message);
CISTERN_EXPORT int cistern_nvtx_range_push(const char* message);
CISTERN_EXPORT int cistern_nvtx_range_pop(void);
CISTERN_EXPORT cistern_status cistern_nvtx_name_stream(int device, cistern_stream stream, const char* name);

/* Of a domain, which is the caller's until it is destroyed; NULL is nothing to destroy. */
typedef struct cistern_nvtx_domain cistern_nvtx_domain;
CISTERN_EXPORT cistern_status cistern_nvtx_domain_create(const char* name, cistern_nvtx_domain** domain);
CISTERN_EXPORT void cistern_nvtx_domain_destroy(cistern_nvtx_domain* domain);
CISTERN_EXPORT void cistern_nvtx_domain_mark(const cistern_nvtx_domain* domain, const char* message);
CISTERN_EXPORT cistern_status cistern_nvtx_domain_range_push(const cistern_nvtx_domain* domain, const char* message,
                                                             int* depth);
CISTERN_EXPORT int cistern_nvtx_domain_range_pop(const cistern_nvtx_domain* domain);

/* --- blas.h --------------------------------------------------------------------------------- */

struct cublasContext; /* cublasHandle_t is a pointer to it */
CISTERN_EXPORT cistern_status cistern_current_blas_handle(struct cublasContext** handle);

/* --- pytorch_names.h, processes.h and ipc.h ---------------------------------------------------- */

/* `stream`: NULL for the current stream of the device. */
CISTERN_EXPORT cistern_status cistern_caching_allocator_alloc(size_t bytes, int device, const cistern_stream* stream,
                                                              void** pointer);
CISTERN_EXPORT void cistern_caching_allocator_delete(void* pointer);
/* Deprecated as in PyTorch: what each stands for is in pytorch_names.h. */
CISTERN_EXPORT cistern_status cistern_memory_cached(int device, size_t* bytes);
CISTERN_EXPORT cistern_status cistern_max_memory_cached(int device, size_t* bytes);
CISTERN_EXPORT cistern_status cistern_reset_max_memory_allocated(int device);
CISTERN_EXPORT cistern_status cistern_reset_max_memory_cached(int device);
/* Writes the text and its null byte, as far as `bytes` of room reach, and how many bytes all of it
 * takes to `needed`. `text` may be NULL where `bytes` is 0. */
CISTERN_EXPORT cistern_status cistern_list_gpu_processes(int device, char* text, size_t bytes, size_t* needed);
CISTERN_EXPORT cistern_status cistern_ipc_collect(void);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_API_H */
