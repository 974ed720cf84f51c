#include "allocator/past_windows.h"

namespace cistern {

void PastWindows::note_exact(Sectors sectors, StreamNumber stream, Sectors address) {
  std::vector<Sectors>& windows = exact_[{sectors, stream}];
  if (windows.size() == kKept) windows.erase(windows.begin());
  windows.push_back(address);
}

void PastWindows::note_length(Sectors sectors, StreamNumber stream, Sectors address) {
  const auto index = static_cast<std::size_t>(stream);
  if (by_length_.size() <= index) by_length_.resize(index + 1);
  by_length_[index].emplace(sectors, address);
}

}  // namespace cistern
