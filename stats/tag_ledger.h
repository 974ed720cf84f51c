#pragma once

// TagLedger: one heap's memory by tag, and who held it when the heap held most.
//
// Kept from the first tagged block on: until then all is untagged, and the heap's own figures say
// what that has. Streams that serve themselves count in shares of their own (TagShare), which are taken in before
// anything else is reported or read. Complexity: O(1) a block, also at a new peak; O(tags) for a reset.
// Not thread-safe: the heap that reports holds its lock around every call.

#include <cistern/stats.h>

#include "stats/tag_share.h"
#include "stats/tags.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern {

// What the ledger knows of one tag; as its blocks, in callers' hands.
struct TagFigures {
  Stat allocation;
  Stat allocated_bytes;
  std::int64_t at_peak_bytes = 0;  // when the heap's allocated bytes reached their peak
};

class TagLedger {
 public:
  [[nodiscard]] bool is_kept() const { return !entries_.empty(); }
  // Whether the tag's blocks may be reported: see keep.
  [[nodiscard]] bool knows(TagId tag) const { return tag < entries_.size(); }
  // Makes room for a tag. `untagged` is what the heap has without one, should this be the first.
  // Throws std::bad_alloc, unchanged.
  void keep(TagId tag, const TagFigures& untagged);

  // A block of the tag was handed out, and the heap has `heap_bytes` allocated now. `share`: of its stream, which may
  // count the next ones by itself; null: it does not. Requires: it knows the tag, and shares were taken in.
  void allocated(TagId tag, std::int64_t bytes, std::int64_t heap_bytes, TagShare* share = nullptr) {
    Entry& entry = entries_[tag];
    save(entry);
    increase(entry.allocation, 1);
    increase(entry.allocated_bytes, bytes);
    if (share != nullptr) use_room(*share, tag, bytes);
    if (is_lent_too_much(entry)) begin_term();
    if (heap_bytes > peak_bytes_) {
      peak_bytes_ = heap_bytes;
      ++peak_;  // from here on what was saved is out of date
      begin_term();
    }
    if (share != nullptr) lend(*share, tag, bytes);
  }
  // A block of the tag was freed. Likewise.
  void freed(TagId tag, std::int64_t bytes, TagShare* share = nullptr) {
    Entry& entry = entries_[tag];
    save(entry);
    decrease(entry.allocation, 1);
    decrease(entry.allocated_bytes, bytes);
    if (share != nullptr) lend(*share, tag, bytes);
  }
  // What streams have parts for. A term ends with a new peak, of a tag or of the heap.
  [[nodiscard]] std::uint64_t term() const { return term_; }
  void take_in(TagShare& share) noexcept;
  void reset_peaks(std::int64_t heap_bytes);
  void reset_accumulated();

  // Tags from kUntagged to the last that it knows.
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  // Requires: tag < size().
  [[nodiscard]] TagFigures figures(std::size_t tag) const;
  [[nodiscard]] std::int64_t live_bytes(TagId tag) const {
    return knows(tag) ? entries_[tag].allocated_bytes.current : 0;
  }

 private:
  struct Entry {
    Stat allocation;
    Stat allocated_bytes;
    // What the tag had at the peak of this number; of an older one if it has not changed since, and
    // then it still has it.
    std::uint64_t saved_for = 0;
    std::int64_t saved_bytes = 0;
    // What shares may still add, in that term.
    TagShare::Amount lent;
    std::uint64_t lent_in = 0;
  };

  void save(Entry& entry) const {
    if (entry.saved_for == peak_) return;
    entry.saved_for = peak_;
    entry.saved_bytes = entry.allocated_bytes.current;
  }
  void begin_term() { ++term_; }
  // Of what came to be live beside what is lent.
  [[nodiscard]] bool is_lent_too_much(const Entry& entry) const {
    return entry.lent_in == term_ && (entry.allocation.current + entry.lent.blocks > entry.allocation.peak ||
                                      entry.allocated_bytes.current + entry.lent.bytes > entry.allocated_bytes.peak);
  }
  // Of what is lent: the block's room, or, where there is less, all, for more is lent anyway.
  void use_room(TagShare& share, TagId tag, std::int64_t bytes) noexcept;
  // Half of what may still come below the tag's peaks, unless there is room for a block of so many bytes: what the
  // stream frees it may use again. Nothing where there is no host memory.
  void lend(TagShare& share, TagId tag, std::int64_t bytes) noexcept;
  void take_in(TagShare::Part& part) noexcept;
  void take_back(TagShare::Part& part) noexcept;
  static void increase(Stat& stat, std::int64_t amount) {
    stat.current += amount;
    stat.allocated += amount;
    if (stat.current > stat.peak) stat.peak = stat.current;
  }
  static void decrease(Stat& stat, std::int64_t amount) {
    stat.current -= amount;
    stat.freed += amount;
    assert(stat.current >= 0 && "more of a tag was freed than was allocated");
  }

  std::vector<Entry> entries_;   // by tag
  std::uint64_t peak_ = 1;       // the number of the heap's peak
  std::int64_t peak_bytes_ = 0;  // and its height
  std::uint64_t term_ = 1;
};

}  // namespace cistern
