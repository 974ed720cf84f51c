// Snapshots: any bytes are read or refused in one line, and what is written of one that was
// read is read back and written the same.

#include <sstream>

#include "tests/fuzz/property.h"
#include "tools/snapshot_reader.h"

namespace cistern {
namespace {

std::string written(const Snapshot& snapshot) {
  std::ostringstream out;
  write_json(snapshot, out);
  return out.str();
}

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  Snapshot snapshot;
  try {
    snapshot = parse_snapshot(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json");
  } catch (const Error& error) {
    require_one_line(error);
    return 0;
  }
  for (const SegmentInfo& segment : snapshot.segments) {
    std::int64_t bytes = 0;
    for (const BlockInfo& block : segment.blocks) bytes += block.size;
    require(bytes == segment.total_size, "blocks tile their segment");
  }
  const std::string text = written(snapshot);
  require(written(parse_snapshot(text, "written.json")) == text, "what is written is read back");
  return 0;
}
