#pragma once

// HashIndex: numbers of things, which are found by a hash of 32 bits, their tag, and what the asker knows of them.
//
// Extendible hashing (Fagin, Nievergelt, Pippenger and Strong, 1979): the upper bits of a tag tell its segment of 128
// slots, in which its lower ones tell where a search begins. A segment that is full becomes two, so that nothing else
// moves; now and then the directory, which has some bytes a segment, is doubled. It does not become large for few
// segments, as it would for tags that agree in many upper bits: good hashes have no such, and of others there is room
// for 96.
// Takes 11 to 21 bytes of host memory a number, and up to twice as many where numbers come and go.
// Complexity: O(1) expected; O(128) where a segment becomes two, O(segments) where the directory is doubled.
// Not thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "allocator/growing_table.h"
#include "allocator/prefetch.h"

namespace cistern {

class HashIndex {
 public:
  using Number = std::uint32_t;
  using Tag = std::uint32_t;
  static constexpr Number kNone = ~Number{0};

  // A tag of two numbers, of which both are in all bits.
  [[nodiscard]] static Tag tag_of(std::int64_t first, std::int64_t second) noexcept {
    const std::uint64_t bits = static_cast<std::uint64_t>(first) * 0x9E3779B97F4A7C15ULL ^
                               static_cast<std::uint64_t>(second) * 0xC2B2AE3D27D4EB4FULL;
    return static_cast<Tag>((bits ^ bits >> 32) * 0x9E3779B97F4A7C15ULL >> 32);
  }

  HashIndex() = default;
  HashIndex(const HashIndex&) = delete;
  HashIndex& operator=(const HashIndex&) = delete;
  void swap(HashIndex& other) noexcept {
    std::swap(segments_, other.segments_);
    std::swap(segments_of_, other.segments_of_);
    std::swap(directory_, other.directory_);
    std::swap(depth_, other.depth_);
  }

  // So many can be added from here on, if tags are as good as random: each may part a segment, and two of them double
  // the directory. Throws std::bad_alloc, unchanged.
  void provide(std::size_t more) {
    if (!has_room(more)) make_room(more);
  }
  [[nodiscard]] bool has_room(std::size_t more) const noexcept {
    return segments_.size() >= used() + more && segments_of_.room() >= used() + more &&
           directory_.room() >= kMostDoublings * (directory_.size() + more);
  }
  // Addresses for about so many in all. Throws std::bad_alloc, unchanged.
  void expect(std::size_t numbers);
  // Has the processor bring what `find` looks at first.
  void fetch(Tag tag) const noexcept {
    if (!directory_.empty()) prefetch(&segments_[segment_of(tag)].slots[first_slot(tag)]);
  }
  // The one of the tag that `is` says it is; none: there is none.
  template <class Is>
  [[nodiscard]] Number find(Tag tag, Is&& is) const {
    if (directory_.empty()) return kNone;
    const Segment& segment = segments_[segment_of(tag)];
    for (std::size_t at = first_slot(tag);; at = behind(at)) {
      const Slot slot = segment.slots[at];
      if (slot.number == kNone || (slot.tag == tag && is(slot.number))) return slot.number;
    }
  }
  // False, and not added: there is no room, or there are too many of the same upper bits.
  // Requires: it is not there.
  [[nodiscard]] bool add(Tag tag, Number number) noexcept;
  // Requires of these: it is there, with that tag.
  void replace(Tag tag, Number number, Number by) noexcept {
    segments_[segment_of(tag)].slots[slot_of(tag, number)].number = by;
  }
  void remove(Tag tag, Number number) noexcept;
  // The room stays.
  void clear() noexcept {
    directory_.clear();
    segments_of_.clear();
    depth_ = 0;
  }

  // How many there are. O(segments).
  [[nodiscard]] std::size_t size() const noexcept;
  // Throws std::logic_error unless each is found where it is looked for. O(n).
  void audit() const;

 private:
  static constexpr unsigned kSlotBits = 7;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;
  // Where more are in a segment searches become long.
  static constexpr std::size_t kMostOfSegment = kSlots / 4 * 3;
  // Places of the directory for each segment, and some more; with tags that are as good as random they are up to 8. So
  // it has none for all bits of a tag: segments for that would be 64 GiB.
  static constexpr std::size_t kMostPlaces = 64;
  static constexpr std::size_t kMostDoublings = 4;  // of the directory: twice two
  struct Slot {
    Number number = kNone;  // none: it is empty
    Tag tag = 0;
  };
  struct Segment {
    std::array<Slot, kSlots> slots;
  };
  struct OfSegment {
    std::uint16_t count = 0;
    std::uint16_t depth = 0;  // upper bits that its tags have in common
  };

  [[nodiscard]] std::size_t used() const noexcept { return segments_of_.size(); }
  [[nodiscard]] static std::size_t first_slot(Tag tag) noexcept { return tag % kSlots; }
  [[nodiscard]] static std::size_t behind(std::size_t slot) noexcept { return (slot + 1) % kSlots; }
  // Requires of these: there are segments.
  [[nodiscard]] std::size_t place_of(Tag tag) const noexcept {
    return static_cast<std::size_t>(std::uint64_t{tag} >> (32 - depth_));
  }
  [[nodiscard]] std::uint32_t segment_of(Tag tag) const noexcept { return directory_[place_of(tag)]; }
  [[nodiscard]] std::size_t slot_of(Tag tag, Number number) const noexcept;
  [[nodiscard]] std::uint32_t add_segment(unsigned depth) noexcept;
  [[nodiscard]] bool part(Tag tag) noexcept;
  static void put(Segment& segment, const Slot& added) noexcept;
  void make_room(std::size_t more);

  GrowingTable<Segment> segments_;
  GrowingList<OfSegment> segments_of_;    // of those that are in use
  GrowingList<std::uint32_t> directory_;  // a segment for each number that the first `depth_` bits of a tag may be
  unsigned depth_ = 0;
};

}  // namespace cistern
