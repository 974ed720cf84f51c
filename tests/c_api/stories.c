#include "tests/c_api/stories.h"

#include <cistern/c_api.h>

#include <string.h>

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
