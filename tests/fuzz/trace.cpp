// Traces, plain and gzip'd: any bytes are read or refused in one line, what was read adds up,
// and what is written of it is read back as the same operations.

#include "tools/trace.h"

#include <sstream>

#include "tests/fuzz/property.h"
#include "tools/input_file.h"

namespace cistern {
namespace {

void require_consistent(const Trace& trace) {
  std::vector<std::uint64_t> bytes(trace.id_count, 0);
  std::vector<bool> is_live(trace.id_count, false);
  std::uint64_t live_bytes = 0, peak = 0, steps = 0;
  for (const TraceOperation& operation : trace.operations) {
    if (operation.kind == TraceOperation::step) {
      ++steps;
      continue;
    }
    require(operation.id < trace.id_count, "ids are dense");
    require(is_live[operation.id] == (operation.kind != TraceOperation::allocate), "only live blocks are used");
    if (operation.kind == TraceOperation::record) continue;
    const bool is_allocation = operation.kind == TraceOperation::allocate;
    is_live[operation.id] = is_allocation;
    if (is_allocation) bytes[operation.id] = operation.bytes;
    live_bytes += is_allocation ? operation.bytes : std::uint64_t{0} - bytes[operation.id];
    peak = std::max(peak, live_bytes);
  }
  require(peak == trace.peak_live_bytes, "the peak is the operations'");
  require(steps == trace.steps && trace.requests() + steps == trace.operations.size(), "the counts are right");
}

}  // namespace
}  // namespace cistern

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string inflated;
  Trace trace;
  try {
    if (text.starts_with("\x1f\x8b")) text = inflated = inflate_gzip(text, "fuzz.trace.gz");
    trace = parse_trace(text, "fuzz.trace");
  } catch (const Error& error) {
    require_one_line(error);
    return 0;
  }
  require_consistent(trace);
  std::ostringstream written;
  write_trace(trace, written);
  const Trace again = parse_trace(written.str(), "written.trace");
  require(again.operations == trace.operations && again.comments == trace.comments, "what is written is read back");
  require(again.streams == trace.streams && again.id_count == trace.id_count, "streams and ids are read back");
  return 0;
}
