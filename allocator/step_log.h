#pragma once

// StepLog: the steps of a stream as they came, and where in them the stream was as it is now.
//
// Each step is written down with what led to it: the state of the stream, by the sum over the blocks that came and
// went, and the kContext steps before. The last place at which these were the same as now is found in one look (of
// steps that were followed, the one before that), by a hash of both (a gear hash: what a step added is shifted out
// after kContext others). One place is kept for each hash, and a later one takes it. What a place says is believed
// after a look at the log: so places of a log that is over may stay, and cost no more than that look.
//
// Not thread-safe. O(1), but for what is said to be otherwise.

#include "allocator/stream_step.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

namespace cistern {

class StepLog {
 public:
  // As many steps as came before tell where the stream is.
  static constexpr std::size_t kContext = 16;

 private:
  static constexpr std::size_t kStepsOfSum = 16;  // one sum for so many steps is kept
  static constexpr std::size_t kStepsOfPlace = 2;
  static constexpr std::size_t kWrittenAtOnce = 16;

  struct Place {
    std::uint32_t hash;
    std::uint32_t steps;  // so many were written down; 0: none
  };

 public:
  // What a step takes of host memory, about.
  static constexpr std::size_t kBytesOfStep =
      sizeof(StreamStep) + sizeof(Place) / kStepsOfPlace + (sizeof(std::uint64_t) + kStepsOfSum - 1) / kStepsOfSum;

  // Host memory for so many steps.
  class Room {
   public:
    Room() = default;
    // Empty where there is none. O(steps).
    [[nodiscard]] static Room of(std::size_t steps) noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    // For who gives it up: nobody looks at what is written there.
    [[nodiscard]] StreamStep* steps() noexcept { return steps_.get(); }

   private:
    friend class StepLog;
    [[nodiscard]] std::size_t places() const noexcept { return places_for(size_); }
    [[nodiscard]] static std::size_t places_for(std::size_t steps) noexcept {
      return (steps + kStepsOfPlace - 1) / kStepsOfPlace;
    }

    std::size_t size_ = 0;
    std::unique_ptr<StreamStep[]> steps_;
    std::unique_ptr<Place[]> places_;        // by hash
    std::unique_ptr<std::uint64_t[]> sums_;  // before each kStepsOfSum-th step
  };

  // Steps that there is room for.
  [[nodiscard]] std::size_t room() const noexcept { return room_.size_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool is_full() const noexcept { return size_ == room_.size_; }
  // The first one, which is where it is until there is other room.
  [[nodiscard]] StreamStep* steps() const noexcept { return room_.steps_.get(); }
  // Of what came and went since it began.
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_; }
  // Steps up to when the state was last what it was as the log began.
  [[nodiscard]] std::size_t last_return() const noexcept { return last_return_; }

  // Begins with no steps.
  void begin() noexcept { sum_ = size_ = candidate_ = last_return_ = 0; }
  // Begins with those of a round that ended, which are written down, and lead back to where they began; from `next` on,
  // round to where it is. O(size).
  void begin_with(const StreamStep* first, const StreamStep* next, std::size_t count) noexcept;
  // Requires: it is not full.
  void write(const StreamStep& step) noexcept;
  // One that came as it had before, which was followed: that place stays the one that is known. Takes no look at the
  // table of places, which is not at hand.
  void write_followed(const StreamStep& step) noexcept { write_step(step, step.change()); }
  // A step that is not written down, nor are any behind it until the log begins again.
  void pass(const StreamStep& step) noexcept { sum_ += step.change(); }

  // So many steps were written down when the stream was last as it is now, and had come there by the same kContext
  // steps; 0: never, or not as far as is known. Requires: the last step was written down. O(kContext + kStepsOfSum).
  [[nodiscard]] std::size_t find() const noexcept {
    return candidate_ == 0 || !leads_here(candidate_, kContext) || sum_before(candidate_) != sum_ ? 0 : candidate_;
  }
  // Whether the last `count` steps are those before there. O(count), less where the very last ones differ.
  [[nodiscard]] bool leads_here(std::size_t there, std::size_t count) const noexcept {
    const auto before_there = std::make_reverse_iterator(steps() + there);
    return count <= there && std::equal(before_there, before_there + static_cast<std::ptrdiff_t>(count),
                                        std::make_reverse_iterator(steps() + size_));
  }

  // Goes on in more room. Returns that from before, which goes without the lock. O(room that there was).
  [[nodiscard]] Room move_to(Room room) noexcept;
  // The same, with nothing in it.
  [[nodiscard]] Room give_up_room() noexcept {
    begin();
    return std::exchange(room_, {});
  }

 private:
  void write_step(const StreamStep& step, std::uint64_t change) noexcept {
    if (size_ % kStepsOfSum == 0) room_.sums_[size_ / kStepsOfSum] = sum_;
    sum_ += change;
    context_ = (context_ << (64 / kContext)) + change;
    room_.steps_[size_] = step;
    ++size_;
    if (sum_ == 0) last_return_ = size_;
  }
  void write_again(std::size_t count) noexcept;
  [[nodiscard]] std::uint32_t hash_of_now() const noexcept {
    return static_cast<std::uint32_t>(((context_ ^ sum_ * 0xD6E8FEB86659FD93ULL) * 0x9E3779B97F4A7C15ULL) >> 32);
  }
  [[nodiscard]] static Place& place_of(Room& room, std::uint32_t hash) noexcept {
    return room.places_[hash * std::uint64_t{room.places()} >> 32];
  }
  [[nodiscard]] std::uint64_t sum_before(std::size_t step) const noexcept;

  Room room_;
  std::size_t size_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t context_ = 0;  // of the last steps
  std::size_t candidate_ = 0;  // the place of now by its hash
  std::size_t last_return_ = 0;
};

}  // namespace cistern
