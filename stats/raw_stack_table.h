#pragma once

// RawStackTable: each distinct stack of one device once, by number, for as long as something refers
// to it.
//
// Not thread-safe: the heap that writes holds its lock around every call.

#include "stats/raw_frames.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cistern {

using StackId = std::uint32_t;  // 0: none
inline constexpr StackId kNoStackId = 0;

// A stack as it was gathered: return addresses, innermost first. Its memory is the caller's.
struct RawStack {
  const std::uintptr_t* frames = nullptr;
  std::uint32_t depth = 0;
  std::uint64_t hash = 0;  // see hash_of
};
[[nodiscard]] std::uint64_t hash_of(const std::uintptr_t* frames, std::size_t depth) noexcept;

class RawStackTable {
 public:
  RawStackTable() = default;
  RawStackTable(const RawStackTable&) = delete;
  RawStackTable& operator=(const RawStackTable&) = delete;
  ~RawStackTable();

  // The stack's number, counted once more; kNoStackId, and counted as lost, if the table is full
  // or there is no host memory. O(depth).
  [[nodiscard]] StackId intern(const RawStack& stack) noexcept;
  void keep(StackId id) noexcept {
    if (stacks_[id - 1].references++ == 0) unused_bytes_ -= bytes_of(stacks_[id - 1]);
  }
  void let_go(StackId id) noexcept {
    if (--stacks_[id - 1].references == 0) unused_bytes_ += bytes_of(stacks_[id - 1]);
  }

  // Requires: it is referred to. Valid until the table is changed.
  [[nodiscard]] std::span<const std::uintptr_t> frames_of(StackId id) const noexcept {
    return span_of(stacks_[id - 1]);
  }

  // Bytes from which on new stacks are lost.
  void set_limit(std::size_t bytes) noexcept { limit_ = bytes; }
  [[nodiscard]] std::size_t size() const noexcept { return known_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  void forget_losses() noexcept { lost_ = 0; }

  // All stacks at one moment, by number: what a snapshot takes under the heap's lock. Shares the frames, and
  // may outlive the table.
  struct Copy {
    FramesHold hold;
    std::vector<std::span<const std::uintptr_t>> stacks;  // by number - 1
  };
  // O(stacks). Throws std::bad_alloc; allocates nothing where `copy` has capacity for as many as stacks_of_copy.
  void copy_to(Copy& copy) const;
  // visit(std::span of addresses) for each number from 1; an empty one for what nothing refers to.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Stack& stack : stacks_)
      visit(stack.references == 0 ? std::span<const std::uintptr_t>() : span_of(stack));
  }
  // Forgets what nothing refers to, which is kept otherwise, since it comes again. O(stacks).
  void drop_unused() noexcept;
  // Verifies what is counted. `held`: by number - 1 how often each stack is referred to, but for as many
  // references as `others` says, each to any stack. Throws std::logic_error naming what differs.
  void check(const std::vector<std::uint64_t>& held, std::uint64_t others) const;
  [[nodiscard]] std::size_t stacks_of_copy() const noexcept { return stacks_.size(); }

 private:
  struct Stack {
    std::uint64_t hash = 0;
    RawFrames frames;  // none: a number that is free
    std::uint32_t depth = 0;
    std::uint32_t references = 0;
  };
  static std::size_t bytes_of(const Stack& stack) noexcept {
    return sizeof(Stack) + 2 * sizeof(StackId) + (1 + stack.depth) * sizeof(std::uintptr_t);
  }
  // Requires: it is there.
  static std::span<const std::uintptr_t> span_of(const Stack& stack) noexcept {
    return {stack.frames.get(), stack.depth};
  }
  [[nodiscard]] StackId add(const RawStack& stack);
  [[nodiscard]] std::size_t place_of(const RawStack& stack) const noexcept;
  void put_in_index(StackId id) noexcept;

  FramesHold frames_;             // that copies share; none before the first stack
  std::vector<Stack> stacks_;     // by number - 1
  std::vector<StackId> free_;     // numbers without a stack
  std::vector<StackId> index_;    // by hash, open addressing; a power of two, at least half empty
  std::size_t known_ = 0;         // in the index
  std::size_t bytes_ = 0;         // of those
  std::size_t unused_bytes_ = 0;  // of those that nothing refers to: kept, since they come again
  std::size_t limit_ = ~std::size_t{0};
  std::uint64_t lost_ = 0;
};

}  // namespace cistern
