#pragma once

// HistoryStage: events of one stream on their way to its device's history.
//
// Complexity: O(1). Not thread-safe: guarded by the lock of what it is part of.

#include "stats/tags.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cistern {

// A block's, without a stack or a text of its own.
struct StagedEvent {
  std::uint64_t ticks = 0;         // see TickClock
  std::uint64_t place = 0;         // see HistoryEntry
  std::uint64_t size_and_tag = 0;  // requested bytes, and from bit 48 on the tag

  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(size_and_tag & ((std::uint64_t{1} << 48) - 1));
  }
  [[nodiscard]] TagId tag() const noexcept { return static_cast<TagId>(size_and_tag >> 48); }
};

class HistoryStage {
 public:
  using Events = std::array<StagedEvent, 64>;
  // Nothing there is looked at before it is written. It outlives this.
  explicit HistoryStage(Events& events) : events_(events) {}

  [[nodiscard]] bool is_full() const noexcept { return size_ == events_.size(); }
  // Requires: it is not full.
  void add(const StagedEvent& event) noexcept { events_[size_++] = event; }
  [[nodiscard]] std::span<const StagedEvent> events() const noexcept { return {events_.data(), size_}; }
  void clear() noexcept { size_ = 0; }

 private:
  Events& events_;
  std::size_t size_ = 0;
};

}  // namespace cistern
