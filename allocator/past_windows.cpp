#include "allocator/past_windows.h"

namespace cistern {

void PastWindows::note_exact(Sectors sectors, StreamNumber stream, Sectors address) {
  HashIndex::Number number = find(sectors, stream);
  if (number == HashIndex::kNone) {
    sizes_.provide(1);
    number = static_cast<HashIndex::Number>(exact_.size());
    exact_.push_back({sectors, stream, {}});
    if (!sizes_.add(HashIndex::tag_of(sectors, stream), number)) return exact_.pop_back();
  }
  std::vector<Sectors>& windows = exact_[number].windows;
  if (windows.size() == kKept) windows.erase(windows.begin());
  windows.push_back(address);
}

void PastWindows::note_length(Sectors sectors, StreamNumber stream, Sectors address) {
  const auto index = static_cast<std::size_t>(stream);
  if (by_length_.size() <= index) by_length_.resize(index + 1);
  by_length_[index].emplace(sectors, address);
}

}  // namespace cistern
