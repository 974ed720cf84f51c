#pragma once

// HandleAges: since when the handles of paged memory are unused, as far as looks at them every now and then tell.
//
// Whoever uses a handle, or frees a part of it, notes that alone, without the time; a look gives its time to all that
// were used since the last one. So the age of a free one is never too high, and too low by less than what lies between
// two looks. Nothing is noted before ages are kept. Complexity: O(1). Not thread-safe: the heap's lock is held.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/page_table.h"

namespace cistern {

class HandleAges {
 public:
  // From now on, or no longer. Until the next look all handles count as used.
  void keep(bool keeps) noexcept {
    if (keeps && !are_kept_)
      for (Age& age : ages_) age.was_used = true;
    are_kept_ = keeps;
  }
  [[nodiscard]] bool are_kept() const { return are_kept_; }

  // Room for handles below this number. Throws std::bad_alloc, unchanged.
  void provide(std::size_t handles) {
    if (ages_.size() < handles) ages_.resize(handles);
  }
  void used(PageTable::Handle handle) noexcept { of(handle).was_used = true; }
  void looked_at(PageTable::Handle handle, std::int64_t now) noexcept {
    Age& age = of(handle);
    if (age.was_used) age = {now, false};
  }
  // Requires: it was looked at, or used.
  [[nodiscard]] bool is_unused_since(PageTable::Handle handle, std::int64_t time) const {
    const Age& age = ages_[static_cast<std::size_t>(handle)];
    return !age.was_used && age.unused_since <= time;
  }

 private:
  struct Age {
    std::int64_t unused_since = 0;
    bool was_used = true;  // since the last look
  };
  [[nodiscard]] Age& of(PageTable::Handle handle) { return ages_[static_cast<std::size_t>(handle)]; }

  std::vector<Age> ages_;
  bool are_kept_ = false;
};

}  // namespace cistern
