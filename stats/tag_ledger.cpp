#include "stats/tag_ledger.h"

#include <utility>

namespace cistern {

void TagLedger::keep(TagId tag, const TagFigures& untagged) {
  if (knows(tag)) return;
  const bool is_first = !is_kept();
  entries_.resize(tag + std::size_t{1});
  if (!is_first) return;
  Entry& entry = entries_[kUntagged];
  entry.allocation = untagged.allocation;
  entry.allocated_bytes = untagged.allocated_bytes;
  entry.saved_for = peak_;
  entry.saved_bytes = peak_bytes_ = untagged.at_peak_bytes;
}

void TagLedger::use_room(TagShare& share, TagId tag, std::int64_t bytes) noexcept {
  TagShare::Part* const part = share.find(tag, term_);
  if (part == nullptr) return;
  const TagShare::Amount used = part->has_room_for(bytes) ? TagShare::Amount{1, bytes} : part->room_;
  part->room_.add(used, -1);
  entries_[tag].lent.add(used, -1);
}

void TagLedger::lend(TagShare& share, TagId tag, std::int64_t bytes) noexcept {
  TagShare::Part* part = share.find(tag, term_);
  if (part != nullptr && part->has_room_for(bytes)) return;
  Entry& entry = entries_[tag];
  save(entry);  // before the share counts what it does not see
  if (std::exchange(entry.lent_in, term_) != term_) entry.lent = {};
  if (part == nullptr) {
    part = share.next_place();
    if (part == nullptr) return;
    take_back(*part);
    part->tag_ = tag;
    part->term_ = term_;
  }
  const auto half_of = [](const Stat& stat, std::int64_t lent) {
    const std::int64_t left = stat.peak - stat.current - lent;
    return left - left / 2;
  };
  const TagShare::Amount more{half_of(entry.allocation, entry.lent.blocks),
                              half_of(entry.allocated_bytes, entry.lent.bytes)};
  part->room_.add(more);
  entry.lent.add(more);
}

void TagLedger::take_in(TagShare& share) noexcept {
  share.for_each([this](TagShare::Part& part) { take_in(part); });
}

void TagLedger::take_in(TagShare::Part& part) noexcept {
  if ((part.came_.blocks | part.went_.blocks) == 0) return;
  assert(part.term_ == term_ && "shares are taken in before a term ends");
  Entry& entry = entries_[part.tag_];
  const auto count = [](Stat& stat, std::int64_t came, std::int64_t went) {
    stat.current += came - went;
    stat.allocated += came;
    stat.freed += went;
    assert(stat.current <= stat.peak && "a stream had no room for what it counted");
  };
  count(entry.allocation, part.came_.blocks, part.went_.blocks);
  count(entry.allocated_bytes, part.came_.bytes, part.went_.bytes);
  entry.lent.add(part.came_, -1);
  entry.lent.add(part.went_);
  part.came_ = part.went_ = {};
}

void TagLedger::take_back(TagShare::Part& part) noexcept {
  take_in(part);
  if (part.term_ == term_) entries_[part.tag_].lent.add(part.room_, -1);
  part = {};
}

TagFigures TagLedger::figures(std::size_t tag) const {
  const Entry& entry = entries_[tag];
  return {entry.allocation, entry.allocated_bytes,
          entry.saved_for == peak_ ? entry.saved_bytes : entry.allocated_bytes.current};
}

void TagLedger::reset_peaks(std::int64_t heap_bytes) {
  peak_bytes_ = heap_bytes;
  ++peak_;
  begin_term();
  for (Entry& entry : entries_) {
    entry.allocation.peak = entry.allocation.current;
    entry.allocated_bytes.peak = entry.allocated_bytes.current;
  }
}

void TagLedger::reset_accumulated() {
  for (Entry& entry : entries_) {
    entry.allocation.allocated = entry.allocation.freed = 0;
    entry.allocated_bytes.allocated = entry.allocated_bytes.freed = 0;
  }
}

}  // namespace cistern
