// Snapshots as pickles: any bytes are read or refused in one line, snapshots or not.

#include <string>

#include "tests/fuzz/snapshot_property.h"
#include "tools/pickle_document.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cistern;
  // The protocol is the first thing that would have to be guessed.
  std::string text(reinterpret_cast<const char*>(data), size);
  if (!text.starts_with('\x80')) text.insert(0, "\x80\x04");
  try {
    ByteSource source = ByteSource::of_text(text, "fuzz.pickle");
    const Document document = read_pickle_document(source);
    const DocumentExtent extent = document.extent();
    require(extent.levels <= Document::kMostLevels, "levels are bounded");
    require(extent.values <= most_values_of(text.size()), "what is shared is bounded");
  } catch (const Error& error) {
    require_one_line(error);
    return 0;
  }
  require_readable_snapshot(text);
  return 0;
}
