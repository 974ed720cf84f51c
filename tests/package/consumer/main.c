/* The same from C. */

#include <cistern/c_api.h>

#include <stdio.h>

int main(void) {
  void* block = NULL;
  cistern_status status = cistern_caching_allocator_alloc(1 << 20, CISTERN_CURRENT_DEVICE, NULL, &block);
  if (status != CISTERN_SUCCESS || block == NULL) {
    fprintf(stderr, "C: %s\n", cistern_last_error());
    return 1;
  }
  cistern_caching_allocator_delete(block);
  puts("C: all is as it should be");
  return 0;
}
