#pragma once

// RawFrames: the return addresses of one stack, which never change; and FramesHold, by which those who copied
// a table of stacks go on reading them whatever the table forgets.
//
// Complexity: O(depth) to make, O(1) to share or give up.
// Thread safety: different holders may be used and destroyed by different threads. Frames are made and given
// up, and holds shared, under the lock of the heap whose table it is.

#include "stats/host_atomics.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cistern {

class RawFrames {
 public:
  // None.
  RawFrames() = default;
  // Throws std::bad_alloc.
  RawFrames(const std::uintptr_t* frames, std::size_t depth) : words_(new std::uintptr_t[1 + depth]) {
    words_[0] = 0;
    std::copy_n(frames, depth, words_.get() + 1);
  }
  explicit operator bool() const noexcept { return words_ != nullptr; }
  // Requires: there are some.
  [[nodiscard]] const std::uintptr_t* get() const noexcept { return words_.get() + 1; }

 private:
  template <class Processors>
  friend class BasicFramesHold;
  // Before the frames a word in which what is given up is linked: to give up takes no memory.
  std::unique_ptr<std::uintptr_t[]> words_;
};

template <class Processors>
class BasicFramesHold {
 public:
  BasicFramesHold() = default;
  BasicFramesHold(BasicFramesHold&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  BasicFramesHold& operator=(BasicFramesHold&& other) noexcept {
    std::swap(held_, other.held_);
    other.reset();
    return *this;
  }
  ~BasicFramesHold() { reset(); }

  // The table's own. Throws std::bad_alloc.
  [[nodiscard]] static BasicFramesHold make() { return BasicFramesHold(new Held); }
  explicit operator bool() const noexcept { return held_ != nullptr; }
  // None if this is none.
  [[nodiscard]] BasicFramesHold share() const noexcept {
    if (held_ != nullptr) held_->holders.fetch_add(1, std::memory_order_relaxed);
    return BasicFramesHold(held_);
  }
  // Frees frames as soon as nobody else holds: now or in a later call, or with the last hold. The table's alone.
  void give_up(RawFrames frames) noexcept {
    // Who is alone stays so: others come by the table, under the lock.
    if (held_->holders.load(std::memory_order_acquire) == 1) {
      free(std::exchange(held_->given_up, nullptr));
      free(frames.words_.release());
      return;
    }
    frames.words_[0] = reinterpret_cast<std::uintptr_t>(held_->given_up);
    held_->given_up = frames.words_.release();
  }
  void reset() noexcept {
    Held* const held = std::exchange(held_, nullptr);
    if (held == nullptr || held->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    free(held->given_up);
    delete held;
  }

 private:
  struct Held {
    typename Processors::template Atomic<std::uint32_t> holders{1};
    std::uintptr_t* given_up = nullptr;  // by the table alone while it holds
  };
  explicit BasicFramesHold(Held* held) noexcept : held_(held) {}
  // These frames, and those that are linked behind them.
  static void free(std::uintptr_t* words) noexcept {
    while (words != nullptr) {
      const std::unique_ptr<std::uintptr_t[]> freed(words);
      words = reinterpret_cast<std::uintptr_t*>(freed[0]);
    }
  }

  Held* held_ = nullptr;
};

using FramesHold = BasicFramesHold<HostAtomics>;

}  // namespace cistern
