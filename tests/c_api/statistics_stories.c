#include <cistern/c_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/c_api/stories.h"

#define HOLDS(condition)               \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

static const size_t mebibyte = (size_t)1 << 20;

int story_statistics(void) {
  CISTERN_STRUCT(cistern_memory_stats, stats);
  void* memory = NULL;
  char* text = NULL;
  size_t needed = 0;
  HOLDS(cistern_allocate(5000, 1, NULL, &memory) == CISTERN_SUCCESS);
  HOLDS(cistern_get_memory_stats(1, &stats) == CISTERN_SUCCESS);
  HOLDS(stats.allocation.all.current == 1 && stats.allocation.small_pool.allocated == 1);
  HOLDS(stats.requested_bytes.all.current == 5000 && stats.allocated_bytes.all.peak == 5120);
  HOLDS(stats.segment.large_pool.current == 0 && stats.reserved_bytes.all.current == 2 << 20);
  HOLDS(stats.num_device_alloc == 1 && stats.num_ooms == 0 && stats.max_split_size == -1);
  HOLDS(cistern_deallocate(memory) == CISTERN_SUCCESS);
  HOLDS(cistern_reset_peak_memory_stats(1) == CISTERN_SUCCESS);
  HOLDS(cistern_reset_accumulated_memory_stats(1) == CISTERN_SUCCESS);
  HOLDS(cistern_get_memory_stats(1, &stats) == CISTERN_SUCCESS);
  HOLDS(stats.allocated_bytes.all.peak == 0 && stats.allocation.all.freed == 0 && stats.num_device_alloc == 0);
  HOLDS(cistern_memory_summary(1, 1, NULL, 0, &needed) == CISTERN_SUCCESS && needed > 1000);
  text = malloc(needed);
  HOLDS(text != NULL && cistern_memory_summary(1, 1, text, needed, &needed) == CISTERN_SUCCESS);
  HOLDS(strlen(text) == needed - 1 && strstr(text, "device ID 1") != NULL);
  free(text);
  HOLDS(cistern_memory_report(1, NULL, 0, &needed) == CISTERN_SUCCESS && needed > 100);
  HOLDS(cistern_memory_report(9, NULL, 0, &needed) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_memory_summary(1, 1, NULL, 10, &needed) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

typedef struct crossing {
  int calls;
  size_t live_bytes;
  char tag[16];
} crossing;
static void on_soft(const char* tag, int device, size_t live_bytes, void* user_data) {
  crossing* seen = user_data;
  seen->calls += device == 0;
  seen->live_bytes = live_bytes;
  strncpy(seen->tag, tag, sizeof seen->tag - 1);
}

int story_scopes(void) {
  CISTERN_STRUCT(cistern_memory_stats, stats);
  CISTERN_STRUCT(cistern_tag_stats, tagged);
  CISTERN_STRUCT(cistern_budget_options, limits);
  cistern_peak_scope* scope = NULL;
  cistern_tag_scope *weights = NULL, *island = NULL;
  cistern_budget* budget = NULL;
  crossing seen = {0, 0, ""};
  void *first = NULL, *second = NULL;
  HOLDS(cistern_peak_scope_create(0, &scope) == CISTERN_SUCCESS);
  HOLDS(cistern_tag_scope_begin("weights", &weights) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(2 * mebibyte, 0, NULL, &first) == CISTERN_SUCCESS);
  HOLDS(cistern_tag_scope_begin(NULL, &island) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(mebibyte, 0, NULL, &second) == CISTERN_SUCCESS);
  cistern_tag_scope_end(island);
  HOLDS(cistern_get_tag_stats(0, "weights", &tagged) == CISTERN_SUCCESS);
  HOLDS(tagged.allocated_bytes.current == (int64_t)(2 * mebibyte) && tagged.allocation.allocated == 1);
  HOLDS(cistern_get_tag_stats(0, NULL, &tagged) == CISTERN_SUCCESS);
  HOLDS(tagged.allocated_bytes.current == (int64_t)mebibyte);
  HOLDS(cistern_get_tag_stats(0, "nobody", &tagged) == CISTERN_SUCCESS && tagged.allocation.allocated == 0);
  HOLDS(cistern_deallocate(second) == CISTERN_SUCCESS);
  cistern_peak_scope_stop(scope);
  HOLDS(cistern_peak_scope_stats(scope, &stats) == CISTERN_SUCCESS);
  HOLDS(stats.allocated_bytes.all.peak == (int64_t)(3 * mebibyte) && stats.allocation.all.freed == 1);
  cistern_peak_scope_destroy(scope);
  cistern_peak_scope_destroy(NULL);
  cistern_peak_scope_stop(NULL);

  limits.tag = "weights";
  limits.soft_bytes = 3 * mebibyte;
  limits.hard_bytes = 5 * mebibyte;
  limits.on_soft = on_soft;
  limits.user_data = &seen;
  HOLDS(cistern_budget_create(&limits, &budget) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(2 * mebibyte, 0, NULL, &second) == CISTERN_SUCCESS);
  HOLDS(seen.calls == 1 && seen.live_bytes == 4 * mebibyte && strcmp(seen.tag, "weights") == 0);
  HOLDS(cistern_deallocate(second) == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(4 * mebibyte, 0, NULL, &second) == CISTERN_ERROR_OUT_OF_MEMORY);
  HOLDS(strstr(cistern_last_error(), "weights") != NULL);
  cistern_budget_destroy(budget);
  cistern_budget_destroy(NULL);
  HOLDS(cistern_allocate(4 * mebibyte, 0, NULL, &second) == CISTERN_SUCCESS);
  cistern_tag_scope_end(weights);
  cistern_tag_scope_end(NULL);
  HOLDS(cistern_deallocate(first) == CISTERN_SUCCESS && cistern_deallocate(second) == CISTERN_SUCCESS);
  limits.hard_bytes = mebibyte;
  HOLDS(cistern_budget_create(&limits, &budget) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_budget_create(NULL, &budget) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_tag_scope_begin("", &weights) == CISTERN_ERROR_INVALID_ARGUMENT);
  return 0;
}

typedef struct received {
  char* bytes;
  size_t count, room;
  int pieces, most_pieces;
} received;
static int receive(const void* bytes, size_t count, void* user_data) {
  received* all = user_data;
  if (++all->pieces > all->most_pieces || all->count + count > all->room) return 1;
  memcpy(all->bytes + all->count, bytes, count);
  all->count += count;
  return 0;
}

int story_snapshots(void) {
  CISTERN_STRUCT(cistern_history_options, history);
  received all = {NULL, 0, (size_t)1 << 24, 0, 1000};
  void* memory = NULL;
  FILE* file = NULL;
  char path[512];
  const char* folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/cistern_c_api_%p.json", folder == NULL ? "/tmp" : folder, (void*)&all);
  all.bytes = malloc(all.room);
  HOLDS(all.bytes != NULL);
  history.enabled = CISTERN_HISTORY_ALL;
  history.context = CISTERN_CONTEXT_NONE;
  HOLDS(cistern_record_history(&history) == CISTERN_SUCCESS);
  HOLDS(cistern_set_user_metadata("step 17") == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(5 * mebibyte, 1, NULL, &memory) == CISTERN_SUCCESS);
  HOLDS(cistern_annotate(memory, "logits") == CISTERN_SUCCESS);
  HOLDS(cistern_annotate(&all, "nothing") == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_send_snapshot(receive, &all, CISTERN_SNAPSHOT_JSON) == CISTERN_SUCCESS && all.count > 100);
  all.bytes[all.count] = '\0';
  HOLDS(strstr(all.bytes, "\"device_traces\"") != NULL && strstr(all.bytes, "step 17") != NULL);
  HOLDS(strstr(all.bytes, "logits") != NULL);
  HOLDS(cistern_write_snapshot(path, CISTERN_SNAPSHOT_JSON) == CISTERN_SUCCESS);
  file = fopen(path, "rb");
  HOLDS(file != NULL && fgetc(file) == '{');
  fclose(file);
  remove(path);
  all.count = 0;
  HOLDS(cistern_send_snapshot(receive, &all, CISTERN_SNAPSHOT_PICKLE) == CISTERN_SUCCESS);
  HOLDS((unsigned char)all.bytes[0] == 0x80 && all.bytes[1] == 4 && all.bytes[all.count - 1] == '.');
  all.most_pieces = 0;
  HOLDS(cistern_send_snapshot(receive, &all, CISTERN_SNAPSHOT_TORCH_JSON) == CISTERN_ERROR_CANCELLED);
  HOLDS(cistern_send_snapshot(receive, &all, 3) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_send_snapshot(NULL, &all, 0) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_write_snapshot("/no/such/folder/file", 0) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_write_snapshot(NULL, 0) == CISTERN_ERROR_INVALID_ARGUMENT);
  history.context = 9;
  HOLDS(cistern_record_history(&history) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_deallocate(memory) == CISTERN_SUCCESS);
  free(all.bytes);
  return 0;
}
