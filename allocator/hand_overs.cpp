#include "allocator/hand_overs.h"

#include <utility>

namespace cistern {

HandOvers::Number HandOvers::note(Record record) {
  const auto [first, last] = of_place_.equal_range(record.place);
  for (auto known = first; known != last; ++known)
    if (records_[known->second - kFirst] == record) return known->second;
  if (records_.size() == kMost) return kNone;
  const auto number = static_cast<Number>(kFirst + records_.size());
  const auto added = of_place_.emplace(record.place, number);
  try {
    records_.push_back(std::move(record));
  } catch (...) {
    of_place_.erase(added);
    throw;
  }
  return number;
}

}  // namespace cistern
