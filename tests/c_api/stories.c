#include "tests/c_api/stories.h"

#include <cistern/c_api.h>

#include <string.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* those are held to their contract, too */

#define HOLDS(condition)               \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

static uint64_t offset_of(const unsigned char* state) {
  uint64_t offset = 0;
  for (int i = 15; i >= 8; --i) offset = offset << 8 | state[i];
  return offset;
}

int story_random_states(void) {
  unsigned char state[CISTERN_RNG_STATE_BYTES];
  unsigned char all[2 * CISTERN_RNG_STATE_BYTES];
  uint64_t seed = 0;
  HOLDS(cistern_manual_seed_all(0x0807060504030201) == CISTERN_SUCCESS);
  HOLDS(cistern_get_rng_state(CISTERN_CURRENT_DEVICE, state, sizeof state) == CISTERN_SUCCESS);
  for (unsigned i = 0; i < 8; ++i) HOLDS(state[i] == i + 1 && state[8 + i] == 0);
  HOLDS(cistern_manual_seed(7) == CISTERN_SUCCESS);
  HOLDS(cistern_initial_seed(&seed) == CISTERN_SUCCESS && seed == 7);
  HOLDS(cistern_get_rng_state_all(all, sizeof all) == CISTERN_SUCCESS);
  HOLDS(all[0] == 7 && memcmp(all + CISTERN_RNG_STATE_BYTES, state, sizeof state) == 0);
  state[8] = 100;
  HOLDS(cistern_set_rng_state(1, state, sizeof state) == CISTERN_SUCCESS);
  HOLDS(cistern_get_rng_state(1, all, sizeof state) == CISTERN_SUCCESS && memcmp(all, state, sizeof state) == 0);
  memset(all, 9, sizeof all);
  HOLDS(cistern_set_rng_state_all(all, sizeof all) == CISTERN_SUCCESS);
  HOLDS(cistern_get_rng_state(1, state, sizeof state) == CISTERN_SUCCESS && state[15] == 9);
  HOLDS(cistern_seed() == CISTERN_SUCCESS && cistern_initial_seed(&seed) == CISTERN_SUCCESS);
  HOLDS(seed != 0x0909090909090909);
  HOLDS(cistern_seed_all() == CISTERN_SUCCESS);
  HOLDS(cistern_get_rng_state_all(all, sizeof all) == CISTERN_SUCCESS);
  HOLDS(memcmp(all, all + CISTERN_RNG_STATE_BYTES, CISTERN_RNG_STATE_BYTES) == 0);

  HOLDS(cistern_get_rng_state(0, state, 15) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_get_rng_state(2, state, 16) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_get_rng_state(0, NULL, 16) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_get_rng_state_all(all, 16) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_set_rng_state(0, state, 17) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_set_rng_state_all(all, 48) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_initial_seed(NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_random_fills(void) {
  unsigned char state[CISTERN_RNG_STATE_BYTES];
  void* memory = NULL;
  HOLDS(cistern_manual_seed_all(1) == CISTERN_SUCCESS);
  HOLDS(cistern_caching_allocator_alloc(4000, 1, NULL, &memory) == CISTERN_SUCCESS && memory != NULL);
  HOLDS(cistern_fill_random_words(memory, 10, 1, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_fill_uniform(memory, 11, 1, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_fill_normal(memory, 3, 1.0F, 2.0F, 1, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_get_rng_state(1, state, sizeof state) == CISTERN_SUCCESS && offset_of(state) == 26);
  HOLDS(cistern_get_rng_state(0, state, sizeof state) == CISTERN_SUCCESS && offset_of(state) == 0);
  HOLDS(cistern_fill_uniform(NULL, 1, 1, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_fill_normal(memory, 1, 0.0F, -1.0F, 1, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_fill_uniform(memory, (size_t)1 << 40, 1, NULL) == CISTERN_ERROR_DRIVER);
  cistern_caching_allocator_delete(memory);
  return 0;
}

int story_nvtx(void) {
  cistern_nvtx_domain* domain = NULL;
  int depth = -1;
  cistern_nvtx_mark("here");
  cistern_nvtx_mark(NULL);
  HOLDS(cistern_nvtx_range_push("outer") == 0);
  HOLDS(cistern_nvtx_range_push("inner") == 1);
  HOLDS(cistern_nvtx_range_pop() == 1);
  HOLDS(cistern_nvtx_range_pop() == 0);
  HOLDS(cistern_nvtx_range_pop() == -1);
  HOLDS(cistern_nvtx_domain_create("lib", &domain) == CISTERN_SUCCESS && domain != NULL);
  cistern_nvtx_domain_mark(domain, "here");
  HOLDS(cistern_nvtx_domain_range_push(domain, "outer", &depth) == CISTERN_SUCCESS && depth == 0);
  HOLDS(cistern_nvtx_domain_range_pop(domain) == 0);
  HOLDS(cistern_nvtx_domain_range_pop(domain) == -1);
  cistern_nvtx_domain_destroy(domain);
  cistern_nvtx_domain_destroy(NULL);
  HOLDS(cistern_nvtx_domain_create("lib", NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_nvtx_name_stream(CISTERN_CURRENT_DEVICE, NULL, "legacy") == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_blas(void) {
  struct cublasContext* handle = NULL;
  HOLDS(cistern_current_blas_handle(&handle) == CISTERN_ERROR_NOT_SUPPORTED);
  HOLDS(handle == NULL);
  HOLDS(strstr(cistern_last_error(), "cuBLAS") != NULL);
  HOLDS(cistern_current_blas_handle(NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_memory(void) {
  const cistern_stream default_stream = NULL;
  void* memory = NULL;
  size_t bytes = 0;
  HOLDS(cistern_caching_allocator_alloc(5 << 20, 1, &default_stream, &memory) == CISTERN_SUCCESS);
  HOLDS(cistern_memory_cached(1, &bytes) == CISTERN_SUCCESS && bytes == 20 << 20);
  HOLDS(cistern_memory_cached(0, &bytes) == CISTERN_SUCCESS && bytes == 0);
  HOLDS(cistern_max_memory_cached(1, &bytes) == CISTERN_SUCCESS && bytes == 20 << 20);
  HOLDS(cistern_reset_max_memory_cached(1) == CISTERN_SUCCESS);
  HOLDS(cistern_reset_max_memory_allocated(1) == CISTERN_SUCCESS);
  HOLDS(cistern_max_memory_cached(1, &bytes) == CISTERN_SUCCESS && bytes == 20 << 20); /* still held */
  cistern_caching_allocator_delete(memory);
  cistern_caching_allocator_delete(NULL);
  HOLDS(cistern_caching_allocator_alloc(0, 0, NULL, &memory) == CISTERN_SUCCESS && memory == NULL);
  HOLDS(cistern_caching_allocator_alloc(1, 0, NULL, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_memory_cached(0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_reset_max_memory_cached(5) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_processes(void) {
  char text[512];
  char start[6];
  size_t needed = 0;
  HOLDS(cistern_list_gpu_processes(1, text, sizeof text, &needed) == CISTERN_SUCCESS);
  HOLDS(strncmp(text, "GPU:1", 5) == 0 && needed == strlen(text) + 1);
  HOLDS(cistern_list_gpu_processes(1, start, sizeof start, &needed) == CISTERN_SUCCESS);
  HOLDS(strcmp(start, "GPU:1") == 0 && needed == strlen(text) + 1);
  needed = 0;
  HOLDS(cistern_list_gpu_processes(1, NULL, 0, &needed) == CISTERN_SUCCESS && needed == strlen(text) + 1);
  HOLDS(cistern_list_gpu_processes(1, NULL, 9, &needed) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_ipc_collect() == CISTERN_SUCCESS);
  return 0;
}

/* DLPack's structures, as C has them. */
struct DLManagedTensor {
  struct {
    void* data;
    struct {
      int32_t device_type;
      int32_t device_id;
    } device;
    int32_t ndim;
    struct {
      uint8_t code;
      uint8_t bits;
      uint16_t lanes;
    } dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
  } dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
};

static cistern_tensor_view host_view(void* data, size_t dimensions, const int64_t* shape) {
  const cistern_tensor_view view = {data, 0, CISTERN_INT32, CISTERN_HOST, dimensions, shape, NULL};
  return view;
}

/* Whether a tensor's elements are `expected`: gathers them on the host. */
static int has_values(const cistern_tensor_view* tensor, const int32_t* expected, size_t count) {
  int32_t found[16] = {0};
  const int64_t elements = (int64_t)count;
  cistern_tensor_view flat = *tensor;
  const cistern_tensor_view out = host_view(found, 1, &elements);
  flat.dimensions = 1;
  flat.shape = &elements;
  flat.strides = NULL;
  return cistern_comm_gather(&flat, 1, 0, NULL, &out, NULL) == CISTERN_SUCCESS &&
         memcmp(found, expected, count * sizeof found[0]) == 0;
}

int story_broadcasts(void) {
  int32_t values[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const int devices[] = {1, 0};
  const cistern_tensor_view on_host = host_view(values, 2, shape);
  cistern_tensor* copies[4] = {NULL, NULL, NULL, NULL};
  cistern_tensor_view views[2];
  HOLDS(cistern_comm_broadcast(&on_host, devices, NULL, 2, CISTERN_PEER_COPIES, copies) == CISTERN_SUCCESS);
  for (int i = 0; i < 2; ++i) {
    views[i] = cistern_tensor_get_view(copies[i]);
    HOLDS(views[i].device == devices[i] && views[i].dimensions == 2 && views[i].shape[1] == 3);
    HOLDS(views[i].dtype == CISTERN_INT32 && views[i].strides[0] == 3 && has_values(&views[i], values, 6));
  }
  values[5] = 7;
  HOLDS(cistern_comm_broadcast(&on_host, NULL, views, 2, CISTERN_PEER_COPIES, NULL) == CISTERN_SUCCESS);
  HOLDS(has_values(&views[1], values, 6));
  HOLDS(cistern_comm_broadcast(&on_host, devices, views, 2, 0, copies) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "both devices and out") != NULL);
  HOLDS(cistern_comm_broadcast(&on_host, NULL, NULL, 2, 0, copies) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_comm_broadcast(&on_host, devices, NULL, 2, 2, copies) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_comm_broadcast(&on_host, devices, NULL, 2, CISTERN_NCCL, copies) == CISTERN_ERROR_NOT_SUPPORTED);
  HOLDS(cistern_comm_broadcast(&on_host, devices, NULL, 2, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_comm_broadcast(NULL, devices, NULL, 2, 0, copies) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strcmp(cistern_last_error(), "tensor is NULL: expected what is to be read") == 0);
  HOLDS(cistern_comm_broadcast(&on_host, devices, NULL, (size_t)1 << 60, 0, copies) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "1152921504606846976 devices: expected no more than 1048576") != NULL);
  HOLDS(cistern_comm_broadcast(&on_host, NULL, views, SIZE_MAX, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "18446744073709551615 tensors: expected no more than 1048576") != NULL);
  cistern_tensor_destroy(copies[0]);
  cistern_tensor_destroy(copies[1]);
  cistern_tensor_destroy(NULL);

  const cistern_tensor_view both[] = {on_host, on_host};
  HOLDS(cistern_comm_broadcast_coalesced(both, 2, devices, 2, CISTERN_COALESCING_BYTES, 0, copies) == CISTERN_SUCCESS);
  for (int i = 0; i < 4; ++i) {
    views[0] = cistern_tensor_get_view(copies[i]);
    HOLDS(views[0].device == devices[i / 2] && has_values(&views[0], values, 6));
    cistern_tensor_destroy(copies[i]);
  }
  HOLDS(cistern_comm_broadcast_coalesced(both, 2, devices, 2, 0, 0, copies) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_sums_and_parts(void) {
  int32_t values[] = {1, 2, 3, 4, 5, 6};
  const int32_t twice[] = {2, 4, 6, 8, 10, 12};
  const int32_t left[] = {1, 4};
  const int64_t shape[] = {2, 3};
  const int64_t sizes[] = {1, 2};
  const int devices[] = {0, 1};
  const int host = CISTERN_HOST;
  const cistern_tensor_view on_host = host_view(values, 2, shape);
  cistern_tensor* made[2] = {NULL, NULL};
  cistern_tensor* sum = NULL;
  cistern_tensor* parts[2] = {NULL, NULL};
  cistern_tensor* joined = NULL;
  cistern_tensor_view views[2];
  cistern_tensor_view view;
  size_t count = 0;
  HOLDS(cistern_comm_broadcast(&on_host, devices, NULL, 2, 0, made) == CISTERN_SUCCESS);
  for (int i = 0; i < 2; ++i) views[i] = cistern_tensor_get_view(made[i]);
  HOLDS(cistern_comm_reduce_add(views, 2, 1, 0, &sum) == CISTERN_SUCCESS);
  view = cistern_tensor_get_view(sum);
  HOLDS(view.device == 1 && has_values(&view, twice, 6));
  HOLDS(cistern_comm_reduce_add(&on_host, 1, 0, 0, &joined) == CISTERN_ERROR_INVALID_ARGUMENT && joined == NULL);

  HOLDS(cistern_comm_scatter(&on_host, devices, NULL, 2, sizes, -1, NULL, parts, &count) == CISTERN_SUCCESS);
  HOLDS(count == 2);
  for (int i = 0; i < 2; ++i) views[i] = cistern_tensor_get_view(parts[i]);
  HOLDS(views[0].shape[1] == 1 && views[1].shape[1] == 2 && has_values(&views[0], left, 2));
  HOLDS(cistern_comm_gather(views, 2, 1, &host, NULL, &joined) == CISTERN_SUCCESS);
  view = cistern_tensor_get_view(joined);
  HOLDS(view.device == CISTERN_HOST && memcmp(view.data, values, sizeof values) == 0);
  cistern_tensor_destroy(joined);
  HOLDS(cistern_comm_gather(views, 2, 1, NULL, NULL, &joined) == CISTERN_SUCCESS);
  view = cistern_tensor_get_view(joined);
  HOLDS(view.device == 0 && has_values(&view, values, 6));
  HOLDS(cistern_comm_gather(views, 2, 1, &host, &view, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "both destination and out") != NULL);
  HOLDS(cistern_comm_scatter(&view, NULL, views, 2, NULL, 1, NULL, NULL, &count) == CISTERN_SUCCESS && count == 2);
  HOLDS(cistern_comm_scatter(&view, NULL, views, 2, sizes, 1, NULL, NULL, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_comm_scatter(&view, devices, views, 2, NULL, 1, NULL, parts, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_comm_scatter(&view, devices, NULL, 2, sizes, 5, NULL, parts, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_comm_scatter(&view, devices, NULL, (size_t)1 << 60, sizes, 1, NULL, parts, NULL) ==
        CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "1152921504606846976 devices") != NULL);
  cistern_tensor_destroy(joined);
  cistern_tensor_destroy(sum);
  for (int i = 0; i < 2; ++i) {
    cistern_tensor_destroy(made[i]);
    cistern_tensor_destroy(parts[i]);
  }
  return 0;
}

static void count_and_keep(struct DLManagedTensor* self) { ++*(int*)self->manager_ctx; }

int story_tensors(void) {
  const int64_t shape[] = {2, 3};
  int64_t sizes[] = {3};
  int32_t values[] = {1, 2, 3};
  int deleted = 0;
  cistern_tensor* tensor = NULL;
  struct DLManagedTensor* managed = NULL;
  HOLDS(cistern_tensor_create(shape, 2, CISTERN_FLOAT64, 1, &tensor) == CISTERN_SUCCESS);
  HOLDS(cistern_tensor_to_dlpack(tensor, &managed) == CISTERN_SUCCESS);
  HOLDS(managed->dl_tensor.device.device_type == 2 && managed->dl_tensor.device.device_id == 1);
  HOLDS(managed->dl_tensor.dtype.code == 2 && managed->dl_tensor.dtype.bits == 64);
  HOLDS(managed->dl_tensor.ndim == 2 && managed->dl_tensor.shape[1] == 3 && managed->dl_tensor.strides[0] == 3);
  managed->deleter(managed);
  tensor = NULL;
  HOLDS(cistern_tensor_create(shape, 2, 15, 1, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_tensor_create(shape, 2, CISTERN_INT8, 9, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_tensor_create(NULL, 2, CISTERN_INT8, 0, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT && tensor == NULL);

  HOLDS(cistern_tensor_create(shape, 65, CISTERN_INT8, 0, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strcmp(cistern_last_error(), "65 dimensions: expected no more than 64") == 0);
  HOLDS(cistern_tensor_create(shape, SIZE_MAX / 8, CISTERN_INT8, 0, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT);

  struct DLManagedTensor foreign = {{values, {1, 0}, 1, {0, 32, 1}, sizes, NULL, 4}, &deleted, count_and_keep};
  HOLDS(cistern_tensor_from_dlpack(&foreign, &tensor) == CISTERN_SUCCESS);
  const cistern_tensor_view view = cistern_tensor_get_view(tensor);
  HOLDS(view.device == CISTERN_HOST && view.dtype == CISTERN_INT32 && view.byte_offset == 4 && view.data == values);
  cistern_tensor_destroy(tensor);
  HOLDS(deleted == 1);
  foreign.dl_tensor.dtype.lanes = 2;
  HOLDS(cistern_tensor_from_dlpack(&foreign, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT && deleted == 1);
  foreign.dl_tensor.ndim = INT32_MAX;
  HOLDS(cistern_tensor_from_dlpack(&foreign, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT && deleted == 1);
  HOLDS(strstr(cistern_last_error(), "2147483647 dimensions") != NULL);
  HOLDS(cistern_tensor_from_dlpack(NULL, &tensor) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_errors(void) {
  void* memory = NULL;
  HOLDS(strcmp(cistern_last_error(), "") == 0);
  HOLDS(cistern_caching_allocator_alloc((size_t)1 << 40, 0, NULL, &memory) == CISTERN_ERROR_OUT_OF_MEMORY);
  HOLDS(memory == NULL && strstr(cistern_last_error(), "out of memory") != NULL);
  HOLDS(cistern_reset_max_memory_cached(7) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "7") != NULL);
  HOLDS(cistern_seed() == CISTERN_SUCCESS && strstr(cistern_last_error(), "7") != NULL);
  return 0;
}
