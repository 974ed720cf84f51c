#ifndef CISTERN_C_API_H
#define CISTERN_C_API_H

/*
 * cistern for C: C99 and later, and C++ without exceptions. Each function is that of the C++ header of its section,
 * without the prefix; what it does stands there.
 *
 * Every function but those that cannot fail returns a status: CISTERN_SUCCESS, or what went wrong, and
 * then nothing was done, and nothing is written to its results. Nothing is thrown across this border.
 * A device is an index; CISTERN_CURRENT_DEVICE is the calling thread's. A stream is the driver's handle
 * (CUstream, or cudaStream_t), on the device that is given with it; NULL is the default stream.
 * Pointers to results must not be NULL; strings are read during the call alone, and may be NULL for "".
 * A function without a status takes no NULL for the object that it is of, but to destroy it.
 * Structs that may grow begin with their size: see c/status.h.
 * Thread safety: any function may be called from any thread; one object is not to be destroyed while it is used.
 */

#include <cistern/c/allocator.h>
#include <cistern/c/device.h>
#include <cistern/c/host_memory.h>
#include <cistern/c/ipc.h>
#include <cistern/c/statistics.h>
#include <cistern/c/status.h>
#include <cistern/export.h>

#include <stddef.h>
#include <stdint.h>

/* A call of what is marked so is warned of, with the words. */
#if defined(__GNUC__)
#define CISTERN_DEPRECATED(words) __attribute__((deprecated(words)))
#else
#define CISTERN_DEPRECATED(words)
#endif

#ifdef __cplusplus
extern "C" {
#endif

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
/* Deprecated, as in PyTorch. */
CISTERN_DEPRECATED("use cistern_memory_reserved")
CISTERN_EXPORT cistern_status cistern_memory_cached(int device, size_t* bytes);
CISTERN_DEPRECATED("use cistern_max_memory_reserved")
CISTERN_EXPORT cistern_status cistern_max_memory_cached(int device, size_t* bytes);
CISTERN_DEPRECATED("use cistern_reset_peak_memory_stats")
CISTERN_EXPORT cistern_status cistern_reset_max_memory_allocated(int device);
CISTERN_DEPRECATED("use cistern_reset_peak_memory_stats")
CISTERN_EXPORT cistern_status cistern_reset_max_memory_cached(int device);
/* Writes the text and its null byte, as far as `bytes` of room reach, and how many bytes all of it
 * takes to `needed`. `text` may be NULL where `bytes` is 0. */
CISTERN_EXPORT cistern_status cistern_list_gpu_processes(int device, char* text, size_t bytes, size_t* needed);
CISTERN_EXPORT cistern_status cistern_ipc_collect(void);

/* --- tensor.h and comm.h ---------------------------------------------------------------------- */

/* As DType of tensor.h, in its order. */
enum {
  CISTERN_BOOLEAN,
  CISTERN_INT8,
  CISTERN_UINT8,
  CISTERN_INT16,
  CISTERN_UINT16,
  CISTERN_INT32,
  CISTERN_UINT32,
  CISTERN_INT64,
  CISTERN_UINT64,
  CISTERN_FLOAT16,
  CISTERN_BFLOAT16,
  CISTERN_FLOAT32,
  CISTERN_FLOAT64,
  CISTERN_COMPLEX64,
  CISTERN_COMPLEX128
};
enum { CISTERN_HOST = -2 }; /* where a tensor may be, beside the devices */
enum { CISTERN_PEER_COPIES = 0, CISTERN_NCCL = 1 };
enum { CISTERN_COALESCING_BYTES = 10485760 };

/* Somebody's elements, read during the call alone. */
typedef struct cistern_tensor_view {
  void* data; /* where the elements lie, or what they are a part of */
  size_t byte_offset;
  int dtype;
  int device;        /* or CISTERN_HOST */
  size_t dimensions; /* at most 64 */
  const int64_t* shape;
  const int64_t* strides; /* in elements; NULL: rows one after the other */
} cistern_tensor_view;

/* Elements of one's own, until they are destroyed; NULL is nothing to destroy. What a view of it points to is the
 * tensor's. */
typedef struct cistern_tensor cistern_tensor;
CISTERN_EXPORT cistern_status cistern_tensor_create(const int64_t* shape, size_t dimensions, int dtype, int device,
                                                    cistern_tensor** tensor);
CISTERN_EXPORT cistern_tensor_view cistern_tensor_get_view(const cistern_tensor* tensor);
CISTERN_EXPORT void cistern_tensor_destroy(cistern_tensor* tensor);
/* DLPack's own structure (dlpack.h), which changes hands if the call succeeds: so does the tensor of the second. */
struct DLManagedTensor;
CISTERN_EXPORT cistern_status cistern_tensor_from_dlpack(struct DLManagedTensor* managed, cistern_tensor** tensor);
CISTERN_EXPORT cistern_status cistern_tensor_to_dlpack(cistern_tensor* tensor, struct DLManagedTensor** managed);

/* Exactly one of `devices` and `out` is not NULL, and has `count` members; of new tensors there are as many, at
 * `copies`, which may be NULL with `out`. No list of any of these calls has more than 2^20 members:
 * CISTERN_ERROR_INVALID_ARGUMENT. */
CISTERN_EXPORT cistern_status cistern_comm_broadcast(const cistern_tensor_view* tensor, const int* devices,
                                                     const cistern_tensor_view* out, size_t count, int transport,
                                                     cistern_tensor** copies);
/* The copies of all tensors on the first device, then those on the second, and so on. */
CISTERN_EXPORT cistern_status cistern_comm_broadcast_coalesced(const cistern_tensor_view* tensors, size_t count,
                                                               const int* devices, size_t device_count,
                                                               size_t buffer_bytes, int transport,
                                                               cistern_tensor** copies);
CISTERN_EXPORT cistern_status cistern_comm_reduce_add(const cistern_tensor_view* inputs, size_t count, int destination,
                                                      int transport, cistern_tensor** sum);
/* As cistern_comm_broadcast; with `out`, `chunk_sizes` is NULL. There may be fewer parts than devices: `made` says how
 * many are at `parts`, and may be NULL. `streams`: NULL, or one a part, of its device, NULL for the default stream. */
CISTERN_EXPORT cistern_status cistern_comm_scatter(const cistern_tensor_view* tensor, const int* devices,
                                                   const cistern_tensor_view* out, size_t count,
                                                   const int64_t* chunk_sizes, int dim, const cistern_stream* streams,
                                                   cistern_tensor** parts, size_t* made);
/* Not both of `destination`, a device or CISTERN_HOST, and `out`; neither is the current device. `joined` may be NULL
 * with `out`. */
CISTERN_EXPORT cistern_status cistern_comm_gather(const cistern_tensor_view* tensors, size_t count, int dim,
                                                  const int* destination, const cistern_tensor_view* out,
                                                  cistern_tensor** joined);

#ifdef __cplusplus
}
#endif

#endif /* CISTERN_C_API_H */
