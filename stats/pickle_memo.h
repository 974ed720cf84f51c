#pragma once

// Which of a pickle's slots keep which shared objects: stacks, which many entries have in common.
//
// Not thread-safe.

#include "stats/pickle_writer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace cistern {

// Objects have numbers, 0 and up, given by the caller. Memory: 4 bytes for each number.
class PickleMemo {
 public:
  // `writer` must outlive the memo and keep nothing else.
  explicit PickleMemo(PickleWriter& writer) : writer_(writer) {}

  // Writes the object as a value: by its slot where one keeps it, else by `write`, and keeps it from then on.
  template <class Write>
  void write(std::size_t object, Write&& write) {
    if (object >= slot_of_.size()) slot_of_.resize(object + 1, kNoSlot);
    if (slot_of_[object] != kNoSlot) {
      writer_.kept(slot_of_[object]);
      return;
    }
    // `write` may keep other objects, so that the slot is chosen after it.
    std::forward<Write>(write)();
    keep(object);
  }

 private:
  static constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();

  void keep(std::size_t object) {
    const std::uint32_t slot = next_++;
    if (!writer_.slots_are_filled_once()) {
      // The oldest makes room: entries that follow each other often have their stacks in common.
      if (next_ == writer_.slots()) next_ = 0;
      if (owners_[slot] != kNobody) slot_of_[owners_[slot]] = kNoSlot;
      owners_[slot] = object;
    }
    writer_.keep(slot);
    slot_of_[object] = slot;
  }

  static constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();
  static constexpr std::array<std::size_t, 256> nobodies() {
    std::array<std::size_t, 256> owners{};
    owners.fill(kNobody);
    return owners;
  }

  PickleWriter& writer_;
  std::uint32_t next_ = 0;
  std::vector<std::uint32_t> slot_of_;
  std::array<std::size_t, 256> owners_ = nobodies();
};

}  // namespace cistern
