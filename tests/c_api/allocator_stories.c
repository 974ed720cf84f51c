#include <cistern/c_api.h>

#include <stdlib.h>
#include <string.h>

#include "tests/c_api/stories.h"

#define HOLDS(condition)               \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

static const size_t mega = (size_t)1 << 20;

int story_versions(void) {
  HOLDS(cistern_c_api_version() == CISTERN_C_API_VERSION);
  HOLDS(strchr(cistern_version(), '.') != NULL);
  HOLDS(strcmp(cistern_status_name(CISTERN_ERROR_NOT_READY), "CISTERN_ERROR_NOT_READY") == 0);
  HOLDS(strcmp(cistern_status_name(99), "CISTERN_ERROR_UNKNOWN") == 0);
  return 0;
}

/* A caller with older headers, and one with newer. */
int story_sizes_of_structs(void) {
  struct {
    cistern_memory_stats known;
    int64_t unknown;
  } newer;
  struct {
    cistern_stream_options known;
    int unknown;
  } options;
  cistern_stream stream = NULL;
  memset(&newer, 0x55, sizeof newer);
  newer.known.size = sizeof newer;
  HOLDS(cistern_get_memory_stats(0, &newer.known) == CISTERN_SUCCESS);
  HOLDS(newer.known.size == sizeof newer.known && newer.known.num_ooms == 0);
  HOLDS(newer.unknown == 0x5555555555555555);
  newer.known.size = 8;
  newer.known.num_ooms = 5;
  HOLDS(cistern_get_memory_stats(0, &newer.known) == CISTERN_ERROR_INVALID_ARGUMENT && newer.known.num_ooms == 5);
  HOLDS(strstr(cistern_last_error(), "stats->size is 8") != NULL);
  HOLDS(cistern_get_memory_stats(0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);

  memset(&options, 0, sizeof options);
  options.known.size = sizeof options;
  HOLDS(cistern_stream_create(0, &options.known, &stream) == CISTERN_SUCCESS && stream != NULL);
  HOLDS(cistern_stream_destroy(stream) == CISTERN_SUCCESS);
  options.unknown = 1;
  stream = NULL;
  HOLDS(cistern_stream_create(0, &options.known, &stream) == CISTERN_ERROR_NOT_SUPPORTED && stream == NULL);
  options.known.size = 4;
  HOLDS(cistern_stream_create(0, &options.known, &stream) == CISTERN_ERROR_INVALID_ARGUMENT && stream == NULL);
  return 0;
}

int story_devices(void) {
  int count = 0, device = -1;
  size_t free_bytes = 0, total_bytes = 0;
  HOLDS(cistern_initialize() == CISTERN_SUCCESS);
  HOLDS(cistern_device_count(&count) == CISTERN_SUCCESS && count == 2);
  HOLDS(cistern_set_device(1) == CISTERN_SUCCESS);
  HOLDS(cistern_current_device(&device) == CISTERN_SUCCESS && device == 1);
  HOLDS(cistern_set_device(2) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_current_device(&device) == CISTERN_SUCCESS && device == 1);
  HOLDS(cistern_memory_info(0, &free_bytes, &total_bytes) == CISTERN_SUCCESS);
  HOLDS(free_bytes == total_bytes && total_bytes == 4096 * mega);
  HOLDS(cistern_memory_info(0, &free_bytes, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_device_count(NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_synchronize(CISTERN_CURRENT_DEVICE) == CISTERN_SUCCESS);
  return 0;
}

int story_streams_and_events(void) {
  CISTERN_STRUCT(cistern_event_options, timed);
  cistern_stream first = NULL, second = NULL, current = NULL, pooled = NULL;
  cistern_event *start = NULL, *end = NULL;
  float milliseconds = -1;
  unsigned char back[64];
  void* memory = NULL;
  timed.enable_timing = 1;
  HOLDS(cistern_stream_create(0, NULL, &first) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_create(0, NULL, &second) == CISTERN_SUCCESS && second != first);
  HOLDS(cistern_stream_from_pool(0, NULL, &pooled) == CISTERN_SUCCESS && pooled != NULL);
  HOLDS(cistern_event_create(&timed, &start) == CISTERN_SUCCESS);
  HOLDS(cistern_event_create(&timed, &end) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(64, 0, first, &memory) == CISTERN_SUCCESS);
  HOLDS(cistern_event_record(start, 0, first) == CISTERN_SUCCESS);
  HOLDS(cistern_fill_async(memory, 9, 64, 0, first) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_query(0, first) == CISTERN_ERROR_NOT_READY);
  HOLDS(cistern_event_record(end, 0, first) == CISTERN_SUCCESS);
  HOLDS(cistern_event_query(end) == CISTERN_ERROR_NOT_READY);
  HOLDS(cistern_event_wait(end, 0, second) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_wait_stream(0, pooled, 0, second) == CISTERN_SUCCESS);
  HOLDS(cistern_record_stream(memory, 0, second) == CISTERN_SUCCESS);
  HOLDS(cistern_copy_async(back, memory, 64, 0, second) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_synchronize(0, second) == CISTERN_SUCCESS && back[63] == 9);
  HOLDS(cistern_event_synchronize(end) == CISTERN_SUCCESS && cistern_event_query(end) == CISTERN_SUCCESS);
  HOLDS(cistern_event_elapsed_time(start, end, &milliseconds) == CISTERN_SUCCESS && milliseconds >= 0);
  HOLDS(cistern_event_elapsed_time(start, NULL, &milliseconds) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_set_stream(0, first) == CISTERN_SUCCESS);
  HOLDS(cistern_current_stream(0, &current) == CISTERN_SUCCESS && current == first);
  HOLDS(cistern_set_stream(0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_query(1, first) == CISTERN_ERROR_INVALID_ARGUMENT); /* of device 0 */
  /* With blocks that were cached for it, and one that it used: they outlive it. */
  HOLDS(cistern_stream_destroy(second) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_destroy(second) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_stream_destroy(pooled) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_deallocate(memory) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_destroy(first) == CISTERN_SUCCESS);
  cistern_event_destroy(start);
  cistern_event_destroy(end);
  cistern_event_destroy(NULL);
  HOLDS(cistern_stream_create(7, NULL, &first) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_stream_create(0, NULL, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_blocks(void) {
  void *first = NULL, *second = NULL, *again = NULL;
  size_t bytes = 0;
  char text[64];
  double fraction = 0;
  HOLDS(cistern_deallocate(&bytes) == CISTERN_ERROR_INVALID_ARGUMENT); /* before the first request */
  HOLDS(cistern_allocate(3 * mega, 0, NULL, &first) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(mega, 1, NULL, &second) == CISTERN_SUCCESS);
  HOLDS(cistern_deallocate_sized(first, 3 * mega - 1, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(strstr(cistern_last_error(), "asked for with 3145728") != NULL);
  HOLDS(cistern_deallocate((char*)first + 512) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_record_stream((char*)first + 512, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_memory_allocated(0, &bytes) == CISTERN_SUCCESS && bytes == 3 * mega);
  HOLDS(cistern_deallocate_sized(first, 3 * mega, 0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate_aligned(2 * mega, 512, 0, NULL, &again) == CISTERN_SUCCESS && (uintptr_t)again % 512 == 0);
  HOLDS(cistern_deallocate_sized(again, 2 * mega, 0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate_aligned(100, 1024, 0, NULL, &again) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_allocate_aligned(100, 48, 0, NULL, &again) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_allocate_aligned(100, 512, 0, NULL, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_deallocate(first) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_deallocate(NULL) == CISTERN_SUCCESS && cistern_deallocate_on(NULL, 0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(3 * mega, 0, NULL, &again) == CISTERN_SUCCESS && again == first);
  HOLDS(cistern_deallocate_on(again, 0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_max_memory_allocated(0, &bytes) == CISTERN_SUCCESS && bytes == 3 * mega);
  HOLDS(cistern_trim(0, 0, &bytes) == CISTERN_SUCCESS && bytes == 20 * mega);
  HOLDS(cistern_memory_reserved(0, &bytes) == CISTERN_SUCCESS && bytes == 0);
  HOLDS(cistern_max_memory_reserved(0, &bytes) == CISTERN_SUCCESS && bytes == 20 * mega);
  HOLDS(cistern_deallocate(second) == CISTERN_SUCCESS && cistern_empty_cache() == CISTERN_SUCCESS);
  HOLDS(cistern_memory_reserved(1, &bytes) == CISTERN_SUCCESS && bytes == 0);
  HOLDS(cistern_register_stream(0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_release_stream(0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_set_memory_fraction(0.5, 0) == CISTERN_SUCCESS);
  HOLDS(cistern_memory_fraction(0, &fraction) == CISTERN_SUCCESS && fraction > 0.49 && fraction < 0.51);
  HOLDS(cistern_set_memory_fraction(2, 0) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_set_options("max_split_size_mb:64") == CISTERN_SUCCESS);
  HOLDS(cistern_set_options("no_such_key:1") == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_effective_config(text, sizeof text, &bytes) == CISTERN_SUCCESS && bytes > sizeof text);
  HOLDS(strlen(text) == sizeof text - 1);
  return 0;
}

typedef struct seen {
  int calls;
  size_t requested;
  void* to_free;
} seen;
static void observe(const cistern_out_of_memory_report* report, void* user_data) {
  seen* found = user_data;
  ++found->calls;
  found->requested = report->requested_bytes;
}
static int give_back(int device, size_t bytes, void* user_data) {
  seen* found = user_data;
  ++found->calls;
  if (found->to_free == NULL || device != 0 || bytes == 0) return 0;
  const cistern_status status = cistern_deallocate(found->to_free);
  found->to_free = NULL;
  return status == CISTERN_SUCCESS;
}

int story_out_of_memory(void) {
  CISTERN_STRUCT(cistern_out_of_memory_report, report);
  seen observed = {0, 0, NULL}, asked = {0, 0, NULL};
  uint64_t observer = 0, callback = 0;
  void* memory = NULL;
  HOLDS(cistern_last_out_of_memory(&report) == CISTERN_ERROR_NOT_READY);
  HOLDS(cistern_add_out_of_memory_observer(observe, &observed, &observer) == CISTERN_SUCCESS);
  HOLDS(cistern_add_free_memory_callback(give_back, &asked, &callback) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(3000 * mega, 0, NULL, &asked.to_free) == CISTERN_SUCCESS);
  asked.calls = 0;
  HOLDS(cistern_allocate(2000 * mega, 0, NULL, &memory) == CISTERN_SUCCESS); /* what the callback freed made room */
  HOLDS(asked.calls > 0 && asked.to_free == NULL && observed.calls == 0);
  HOLDS(cistern_allocate(5000 * mega, 0, NULL, &memory) == CISTERN_ERROR_OUT_OF_MEMORY);
  HOLDS(observed.calls == 1 && observed.requested == 5000 * mega);
  HOLDS(cistern_last_out_of_memory(&report) == CISTERN_SUCCESS);
  HOLDS(report.cause == CISTERN_OOM_TOO_LARGE && report.requested_bytes == 5000 * mega && report.device == 0);
  HOLDS(report.device_total_bytes == report.device_free_bytes + report.outside_bytes + report.reserved_bytes);
  HOLDS(report.limit_bytes == SIZE_MAX && report.has_device_figures == 1);
  HOLDS(cistern_remove_observer(observer) == CISTERN_SUCCESS);
  HOLDS(cistern_remove_observer(observer) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_allocate(5000 * mega, 0, NULL, &memory) == CISTERN_ERROR_OUT_OF_MEMORY && observed.calls == 1);
  HOLDS(cistern_remove_observer(callback) == CISTERN_SUCCESS);
  HOLDS(cistern_add_out_of_memory_observer(NULL, NULL, &observer) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

int story_pools(void) {
  CISTERN_STRUCT(cistern_pool_options, options);
  cistern_pool* pool = NULL;
  cistern_pool_scope* scope = NULL;
  void *inside = NULL, *by_scope = NULL, *outside = NULL;
  size_t bytes = 0;
  const cistern_pool_id id = cistern_graph_pool_handle(), captures = cistern_capture_pool_id();
  const cistern_stream default_stream = NULL;
  options.device = 1;
  options.name = "activations";
  HOLDS(cistern_pool_create(&options, &pool) == CISTERN_SUCCESS);
  HOLDS(cistern_pool_allocate(pool, mega, 1, NULL, &inside) == CISTERN_SUCCESS);
  HOLDS(cistern_pool_scope_begin(pool, &scope) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(mega, 1, NULL, &by_scope) == CISTERN_SUCCESS);
  cistern_pool_scope_end(scope);
  HOLDS(cistern_allocate(mega, 1, NULL, &outside) == CISTERN_SUCCESS);
  HOLDS(cistern_memory_reserved(1, &bytes) == CISTERN_SUCCESS && bytes == 4 * mega);
  HOLDS(cistern_deallocate(inside) == CISTERN_SUCCESS && cistern_deallocate(by_scope) == CISTERN_SUCCESS);
  HOLDS(cistern_pool_trim(pool, &bytes) == CISTERN_SUCCESS && bytes == 2 * mega);
  cistern_pool_destroy(pool);
  cistern_pool_destroy(NULL);
  cistern_pool_scope_end(NULL);
  HOLDS(cistern_deallocate(outside) == CISTERN_SUCCESS);
  options.device = 5;
  HOLDS(cistern_pool_create(&options, &pool) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_pool_allocate(NULL, mega, 1, NULL, &inside) == CISTERN_ERROR_INVALID_ARGUMENT);

  HOLDS(id.first == 0 && id.second != 0 && captures.first != 0 && captures.second == 0);
  HOLDS(cistern_begin_allocate_to_pool(0, id, &default_stream) == CISTERN_SUCCESS);
  HOLDS(cistern_begin_allocate_to_pool(0, id, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_end_allocate_to_pool(0, id) == CISTERN_SUCCESS);
  HOLDS(cistern_release_pool(0, id) == CISTERN_SUCCESS);
  HOLDS(cistern_release_pool(0, id) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}
