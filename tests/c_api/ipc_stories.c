#include <cistern/c_api.h>

#include <string.h>
#include <unistd.h>

#include "tests/c_api/stories.h"

#define HOLDS(condition)               \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

static const size_t mega = (size_t)1 << 20;

/* What another process does with it: tests/ipc. */
int story_sent_memory(void) {
  unsigned char handle[CISTERN_MEMORY_HANDLE_BYTES], untouched[CISTERN_MEMORY_HANDLE_BYTES];
  cistern_ipc_memory* memory = NULL;
  void* block = NULL;
  size_t live = 1;
  CISTERN_STRUCT(cistern_ipc_counts, counts);
  HOLDS(cistern_allocate(3 * mega, 0, NULL, &block) == CISTERN_SUCCESS);
  HOLDS(cistern_send_memory(block, 2, handle, sizeof handle) == CISTERN_SUCCESS);
  HOLDS(cistern_get_ipc_counts(&counts) == CISTERN_SUCCESS);
  HOLDS(counts.handles == 1 && counts.receivers == 2 && counts.blocks == 1 && counts.waiting == 0 && counts.has_file);
  HOLDS(cistern_open_ipc(handle, sizeof handle, CISTERN_CURRENT_DEVICE, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(memory == NULL); /* a process does not open its own */
  HOLDS(cistern_deallocate(block) == CISTERN_SUCCESS);
  HOLDS(cistern_memory_allocated(0, &live) == CISTERN_SUCCESS && live == 3 * mega);
  HOLDS(cistern_recall_memory(handle, sizeof handle) == CISTERN_SUCCESS);
  HOLDS(cistern_memory_allocated(0, &live) == CISTERN_SUCCESS && live == 0);
  HOLDS(cistern_recall_memory(handle, sizeof handle) == CISTERN_ERROR_INVALID_ARGUMENT);

  memset(handle, 0x55, sizeof handle);
  memcpy(untouched, handle, sizeof handle);
  HOLDS(cistern_send_memory(block, 1, handle, sizeof handle) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_send_memory(block, 1, NULL, sizeof handle) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_send_memory(block, 1, handle, sizeof handle - 1) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_ipc_handle(&live, handle, sizeof handle) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(memcmp(untouched, handle, sizeof handle) == 0);
  HOLDS(cistern_open_ipc(handle, sizeof handle, 0, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_open_ipc(NULL, 0, 0, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_open_ipc(handle, sizeof handle, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_get_ipc_counts(NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_ipc_memory_release(NULL, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  cistern_ipc_memory_destroy(NULL);
  return 0;
}

int story_shared_descriptors(void) {
  int descriptors[2] = {-1, -1};
  cistern_ipc_memory *memory = NULL, *whole = NULL;
  void* block = NULL;
  unsigned char back = 0;
  CISTERN_STRUCT(cistern_shared_range, range);
  HOLDS(cistern_set_options("expandable_segments:True") == CISTERN_SUCCESS);
  HOLDS(cistern_allocate(30 * mega, 0, NULL, &block) == CISTERN_SUCCESS);
  HOLDS(cistern_fill_async(block, 7, 30 * mega, 0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_export_range(block, NULL, 0, &range) == CISTERN_SUCCESS);
  HOLDS(range.pieces == 2 && range.piece_bytes == 20 * mega && range.offset == 0 && range.bytes == 30 * mega);
  HOLDS(cistern_export_range(block, descriptors, 1, &range) == CISTERN_SUCCESS && descriptors[0] == -1);
  HOLDS(cistern_export_range(block, descriptors, 2, &range) == CISTERN_SUCCESS && descriptors[1] > descriptors[0]);
  HOLDS(cistern_import_range(descriptors, &range, 0, &memory) == CISTERN_SUCCESS);
  HOLDS(cistern_ipc_memory_size(memory) == 30 * mega && cistern_ipc_memory_data(memory) != block);
  HOLDS(cistern_import_fd(descriptors[1], 20 * mega, 0, &whole) == CISTERN_SUCCESS);
  HOLDS(cistern_copy_async(&back, cistern_ipc_memory_data(whole), 1, 0, NULL) == CISTERN_SUCCESS);
  HOLDS(cistern_stream_synchronize(0, NULL) == CISTERN_SUCCESS && back == 7);
  HOLDS(cistern_ipc_memory_release(memory, 99, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_ipc_memory_release(memory, 0, NULL) == CISTERN_SUCCESS);
  cistern_ipc_memory_destroy(whole);

  HOLDS(cistern_import_fd(descriptors[0], 10 * mega, 0, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_import_fd(descriptors[0], 20 * mega, 99, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_import_fd(descriptors[0], 20 * mega, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_import_range(NULL, &range, 0, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_import_range(descriptors, NULL, 0, &memory) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_export_range(block, NULL, 1, &range) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_export_range(block, NULL, 0, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_export_fd(&back, descriptors) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(cistern_export_fd(block, NULL) == CISTERN_ERROR_INVALID_ARGUMENT);
  HOLDS(close(descriptors[0]) == 0 && close(descriptors[1]) == 0); /* nobody else closed them */
  HOLDS(cistern_export_fd(block, descriptors) == CISTERN_SUCCESS && close(descriptors[0]) == 0);
  HOLDS(cistern_deallocate(block) == CISTERN_SUCCESS);
  return 0;
}
