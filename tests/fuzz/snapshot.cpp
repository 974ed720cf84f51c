// Snapshots as JSON, cistern's and PyTorch's: any bytes are read or refused in one line.

#include "tests/fuzz/snapshot_property.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cistern::require_readable_snapshot(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
