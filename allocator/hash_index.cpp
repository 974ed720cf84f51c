#include "allocator/hash_index.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>
#include <vector>

#include "stats/invariant.h"

namespace cistern {

void HashIndex::make_room(std::size_t more) {
  directory_.provide(kMostDoublings * (directory_.size() + more));
  segments_.provide(used() + more);
  segments_of_.provide(used() + more);
}

// A segment that was parted has half of the most that one may have, and fewer where numbers come and go.
void HashIndex::expect(std::size_t numbers) {
  const std::size_t segments = numbers / (kMostOfSegment / 8 * 3) + 8;
  directory_.expect(kMostDoublings * std::bit_ceil(segments));
  segments_.expect(segments);
  segments_of_.expect(segments);
}

bool HashIndex::add(Tag tag, Number number) noexcept {
  if (directory_.empty()) {
    if (!has_room(1)) return false;
    directory_.push_back(add_segment(0));
  }
  while (segments_of_[segment_of(tag)].count == kMostOfSegment)
    if (!part(tag)) return false;
  put(segments_[segment_of(tag)], {number, tag});
  ++segments_of_[segment_of(tag)].count;
  return true;
}

void HashIndex::put(Segment& segment, const Slot& added) noexcept {
  std::size_t at = first_slot(added.tag);
  while (segment.slots[at].number != kNone) at = behind(at);
  segment.slots[at] = added;
}

// There is room.
std::uint32_t HashIndex::add_segment(unsigned depth) noexcept {
  const auto number = static_cast<std::uint32_t>(used());
  segments_.provide(number + std::size_t{1});
  segments_of_.push_back({0, static_cast<std::uint16_t>(depth)});
  segments_[number].slots.fill({});
  return number;
}

// What is in the tag's segment lies in two from here on, by the next bit of its tags. False: there is no room.
bool HashIndex::part(Tag tag) noexcept {
  const std::uint32_t parted = segment_of(tag);
  const unsigned depth = segments_of_[parted].depth + 1U;
  const bool is_there = used() < segments_.size() && used() < segments_of_.room() &&
                        (depth <= depth_ || 2 * directory_.size() <= directory_.room());
  if (!is_there) return false;
  if (depth > depth_) {
    if (directory_.size() > kMostPlaces * used()) return false;
    directory_.resize(2 * directory_.size());
    for (std::size_t at = directory_.size(); at-- != 0;) directory_[at] = directory_[at / 2];
    ++depth_;
  }
  const std::uint32_t other = add_segment(depth);
  const Segment slots = segments_[parted];
  segments_[parted].slots.fill({});
  segments_of_[parted] = {0, static_cast<std::uint16_t>(depth)};
  for (const Slot& slot : slots.slots) {
    if (slot.number == kNone) continue;
    const std::uint32_t segment = (slot.tag >> (32 - depth)) % 2 == 0 ? parted : other;
    put(segments_[segment], slot);
    ++segments_of_[segment].count;
  }
  // Those of the segment lie side by side: the upper half is the other's.
  const std::size_t half = std::size_t{1} << (depth_ - depth);
  const std::size_t first = place_of(tag) / (2 * half) * (2 * half);
  std::fill_n(directory_.begin() + first + half, half, other);
  return true;
}

std::size_t HashIndex::slot_of(Tag tag, Number number) const noexcept {
  const Segment& segment = segments_[segment_of(tag)];
  std::size_t at = first_slot(tag);
  for (; segment.slots[at].number != number; at = behind(at)) assert(segment.slots[at].number != kNone);
  return at;
}

// Those that are found by way of its slot move up.
void HashIndex::remove(Tag tag, Number number) noexcept {
  const std::uint32_t of = segment_of(tag);
  std::array<Slot, kSlots>& slots = segments_[of].slots;
  std::size_t empty = slot_of(tag, number);
  for (std::size_t at = behind(empty); slots[at].number != kNone; at = behind(at)) {
    if ((at - first_slot(slots[at].tag)) % kSlots < (at - empty) % kSlots) continue;
    slots[empty] = slots[at];
    empty = at;
  }
  slots[empty] = {};
  --segments_of_[of].count;
}

std::size_t HashIndex::size() const noexcept {
  return std::accumulate(segments_of_.begin(), segments_of_.end(), std::size_t{0},
                         [](std::size_t sum, const OfSegment& of) { return sum + of.count; });
}

void HashIndex::audit() const {
  require(directory_.empty() || directory_.size() == std::size_t{1} << depth_,
          "the directory has a place for all tags");
  std::vector<std::size_t> counts(used());
  for (std::size_t number = 0; number < used(); ++number)
    for (const Slot& slot : segments_[number].slots) {
      if (slot.number == kNone) continue;
      ++counts[number];
      require(segment_of(slot.tag) == number, "a tag is in another segment");
      const Number found = find(slot.tag, [&](Number other) { return other == slot.number; });
      require(found == slot.number, "a number is not found by its tag");
    }
  for (std::size_t number = 0; number < used(); ++number)
    require(counts[number] == segments_of_[number].count, "a segment has another number of slots in use");
  for (std::size_t at = 0; at < directory_.size(); ++at) {
    const OfSegment& of = segments_of_[directory_[at]];
    const std::size_t same = std::size_t{1} << (depth_ - of.depth);
    require(directory_[at / same * same] == directory_[at], "the places of a segment lie side by side");
  }
}

}  // namespace cistern
