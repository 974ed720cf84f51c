// The functions of C from C++ without exceptions and types at run time: its own flags, see CMakeLists.txt.

#include <cistern/c_api.h>

#include <cstddef>

#include "tests/c_api/stories.h"

int story_without_exceptions() {
  CISTERN_STRUCT(cistern_memory_stats, stats);
  void* memory = nullptr;
  if (cistern_allocate(1000, CISTERN_CURRENT_DEVICE, nullptr, &memory) != CISTERN_SUCCESS) return 1;
  if (cistern_get_memory_stats(CISTERN_CURRENT_DEVICE, &stats) != CISTERN_SUCCESS) return 2;
  if (stats.requested_bytes.all.current != 1000) return 3;
  if (cistern_allocate(std::size_t{1} << 50, 0, nullptr, &memory) != CISTERN_ERROR_OUT_OF_MEMORY) return 4;
  return cistern_deallocate(memory) == CISTERN_SUCCESS ? 0 : 5;
}
