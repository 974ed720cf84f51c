/*
 * cistern from C: memory for two streams, a tag, statistics, an error in words, a snapshot through a callback.
 *   CISTERN_DEVICE=simulated cistern_c_program     (or cuda)
 */

#include <cistern/c_api.h>

#include <stdio.h>
#include <stdlib.h>

#define BYTES ((size_t)4 << 20)

static void check(cistern_status status, const char* what) {
  if (status == CISTERN_SUCCESS) return;
  fprintf(stderr, "%s: %s: %s\n", what, cistern_status_name(status), cistern_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

static int count_bytes(const void* bytes, size_t count, void* user_data) {
  (void)bytes;
  *(size_t*)user_data += count;
  return 0;
}

int main(void) {
  cistern_stream compute = NULL, copies = NULL;
  cistern_event* filled = NULL;
  cistern_tag_scope* tag = NULL;
  CISTERN_STRUCT(cistern_memory_stats, stats);
  CISTERN_STRUCT(cistern_out_of_memory_report, report);
  void* block = NULL;
  unsigned char* back = malloc(BYTES);
  size_t snapshot_bytes = 0;
  if (back == NULL) return 1;

  CHECK(cistern_stream_create(CISTERN_CURRENT_DEVICE, NULL, &compute));
  CHECK(cistern_stream_create(CISTERN_CURRENT_DEVICE, NULL, &copies));
  CHECK(cistern_event_create(NULL, &filled));

  CHECK(cistern_tag_scope_begin("batch", &tag));
  CHECK(cistern_allocate(BYTES, CISTERN_CURRENT_DEVICE, compute, &block));
  cistern_tag_scope_end(tag);
  CHECK(cistern_fill_async(block, 42, BYTES, CISTERN_CURRENT_DEVICE, compute));
  CHECK(cistern_event_record(filled, CISTERN_CURRENT_DEVICE, compute));

  CHECK(cistern_event_wait(filled, CISTERN_CURRENT_DEVICE, copies));
  CHECK(cistern_copy_async(back, block, BYTES, CISTERN_CURRENT_DEVICE, copies));
  /* Freed before the copy is done, and not reused before it is. */
  CHECK(cistern_deallocate_on(block, CISTERN_CURRENT_DEVICE, copies));
  CHECK(cistern_stream_synchronize(CISTERN_CURRENT_DEVICE, copies));

  CHECK(cistern_get_memory_stats(CISTERN_CURRENT_DEVICE, &stats));
  printf("byte %d came back; %lld bytes were allocated at most, %lld are now\n", back[BYTES - 1],
         (long long)stats.allocated_bytes.all.peak, (long long)stats.allocated_bytes.all.current);

  if (cistern_allocate((size_t)1 << 50, CISTERN_CURRENT_DEVICE, compute, &block) != CISTERN_ERROR_OUT_OF_MEMORY)
    return 1;
  CHECK(cistern_last_out_of_memory(&report));
  printf("no room for %zu bytes on a device of %zu\n", report.requested_bytes, report.device_total_bytes);

  CHECK(cistern_send_snapshot(count_bytes, &snapshot_bytes, CISTERN_SNAPSHOT_JSON));
  printf("a snapshot of %zu bytes\n", snapshot_bytes);

  cistern_event_destroy(filled);
  CHECK(cistern_stream_destroy(copies));
  CHECK(cistern_stream_destroy(compute));
  free(back);
  return stats.allocated_bytes.all.current == 0 && snapshot_bytes > 0 ? 0 : 1;
}
