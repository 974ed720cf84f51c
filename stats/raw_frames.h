#pragma once

// RawFrames: the return addresses of one stack, which never change; and FramesHold, by which those who copied
// a table of stacks go on reading them whatever the table forgets.
//
// Complexity: O(depth) to make, O(1) to share or give up.
// Thread safety: different holders may be used and destroyed by different threads. Frames are made and given
// up, and holds shared, under the lock of the heap whose table it is.

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
  friend class FramesHold;
  // Before the frames a word in which what is given up is linked: to give up takes no memory.
  std::unique_ptr<std::uintptr_t[]> words_;
};

class FramesHold {
 public:
  FramesHold() = default;
  FramesHold(FramesHold&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  FramesHold& operator=(FramesHold&& other) noexcept {
    std::swap(held_, other.held_);
    other.reset();
    return *this;
  }
  ~FramesHold() { reset(); }

  // The table's own. Throws std::bad_alloc.
  [[nodiscard]] static FramesHold make() { return FramesHold(new Held); }
  explicit operator bool() const noexcept { return held_ != nullptr; }
  // None if this is none.
  [[nodiscard]] FramesHold share() const noexcept {
    if (held_ != nullptr) held_->holders.fetch_add(1, std::memory_order_relaxed);
    return FramesHold(held_);
  }
  // Frees frames as soon as nobody else holds: now or in a later call, or with the last hold. The table's alone.
  void give_up(RawFrames frames) noexcept;
  void reset() noexcept;

 private:
  struct Held {
    std::atomic<std::uint32_t> holders{1};
    std::uintptr_t* given_up = nullptr;  // by the table alone while it holds
    ~Held() { free_given_up(); }
    void free_given_up() noexcept;
  };
  explicit FramesHold(Held* held) noexcept : held_(held) {}

  Held* held_ = nullptr;
};

}  // namespace cistern
