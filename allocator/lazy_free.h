#pragma once

// LazyFree: the last allocation of a stream, while nothing else has happened there.
//
// Programs free what they allocated last and ask for the same size again. As long as nothing
// else happened, that free and the next request would merge the same block into the same free block and cut
// it out again, and no figure would come to where it had not been: the block is left as it is, and how often
// it went and came is counted. So it is where another stream used the block: its free is then awaited first
// (AwaitedFrees). Whatever else happens on the stream, and whoever takes the heap's lock, finds all of
// it carried out (stream_hits.cpp, HeapMutex).
// O(1). Not thread-safe: guarded by the stream's lock, unless it says otherwise.

#include "allocator/block.h"
#include "stats/block_ledger.h"
#include "stats/host_atomics.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cistern {

template <class Processors>
class BasicLazyFree {
 public:
  enum class State : std::uint8_t {
    in_use,   // handed out
    shared,   // and another stream uses it
    free,     // freed since; in no pool yet, and in the block map still
    awaited,  // freed since, behind an event; in the block map still
  };

  // The block was handed out. `is_plain`: what happens to it from now on is told to nobody but the history.
  void begin(Block* allocated, const InactiveSplitChange& brought, bool is_plain) noexcept {
    block_ = allocated;
    // Member by member: copied as a whole, it is read back before it is written.
    change_.count = brought.count;
    change_.bytes = brought.bytes;
    turns_ = told_turns_ = 0;
    is_plain_ = is_plain;
    is_told_ = true;
    be(State::in_use);
    may_go();
  }
  // It is freed, and stands. `is_told`: the recurrence was told of it.
  void go(bool is_told) noexcept {
    be(State::free);
    is_told_ = is_told;
    coming_.store(is_plain_ && !is_told ? block_->requested : 0, std::memory_order_relaxed);
  }
  void come_back() noexcept {
    be(State::in_use);
    ++turns_;
    told_turns_ += is_told_ ? 1 : 0;
    may_go();
  }
  void share() noexcept { be(State::shared); }
  void await() noexcept { be(State::awaited); }
  void complete() noexcept { be(State::free); }
  // Something else happens. Requires: it is not freed, and no turns are counted.
  void drop() noexcept {
    block_ = nullptr;
    going_.store(0, std::memory_order_relaxed);
  }
  // The same once all of it is carried out.
  void end() noexcept {
    turns_ = told_turns_ = 0;
    is_told_ = true;
    be(State::in_use);
    block_ = nullptr;
  }
  void end_turns() noexcept { turns_ = told_turns_ = 0; }

  // Null: something else happened; then it is not freed, and no turns are counted.
  [[nodiscard]] Block* block() const noexcept { return block_; }
  [[nodiscard]] bool is_of(std::uint64_t address) const noexcept {
    return block_ != nullptr && block_->address == address;
  }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool is_freed() const noexcept { return state_ >= State::free; }
  // Whether nobody but the history is told what happens to it.
  [[nodiscard]] bool is_plain() const noexcept { return is_plain_; }
  [[nodiscard]] bool serves(std::size_t bytes) const noexcept {
    return state_ == State::free && block_->requested == bytes;
  }
  // Times that it was freed and handed out again.
  [[nodiscard]] std::int64_t turns() const noexcept { return turns_; }
  // Those that the recurrence was not told of.
  [[nodiscard]] std::int64_t untold_turns() const noexcept { return turns_ - told_turns_; }
  // What it brought; a free takes it back.
  [[nodiscard]] const InactiveSplitChange& change() const noexcept { return change_; }
  [[nodiscard]] InactiveSplitChange change_by_freeing() const noexcept { return {-change_.count, -change_.bytes}; }
  // What of it a recurrence that does not learn is not told one by one: a free and the request that follows cancel
  // each other. A free that was not told, and stands, is told when it is carried out. Returns what held before.
  bool tell() noexcept {
    coming_.store(0, std::memory_order_relaxed);  // who takes it back tells of that, too
    return std::exchange(is_told_, true);
  }

  // Plain pairs: whether a free of the block at that address would stand, and whether the one that stands serves a
  // request for so many bytes, with no more to look at than PairHits does. May be asked without the lock, by whom
  // BiasedMutex::try_enter lets in then. Neither is 0.
  [[nodiscard]] bool goes(std::uint64_t address) const noexcept {
    return going_.load(std::memory_order_relaxed) == address;
  }
  [[nodiscard]] bool comes_for(std::size_t bytes) const noexcept {
    return coming_.load(std::memory_order_relaxed) == bytes;
  }
  // Requires: it goes. Returns what was asked for.
  [[gnu::always_inline]] std::size_t go_plainly() noexcept {
    state_ = State::free;
    is_told_ = false;
    going_.store(0, std::memory_order_relaxed);
    const std::size_t requested = block_->requested;
    coming_.store(requested, std::memory_order_relaxed);
    return requested;
  }
  // Requires: it comes. Returns the address.
  [[nodiscard, gnu::always_inline]] std::uint64_t come_back_plainly() noexcept {
    state_ = State::in_use;
    is_told_ = true;
    ++turns_;
    coming_.store(0, std::memory_order_relaxed);
    const std::uint64_t address = block_->address;
    going_.store(address, std::memory_order_relaxed);
    return address;
  }

 private:
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;

  void be(State state) noexcept {
    state_ = state;
    going_.store(0, std::memory_order_relaxed);
    coming_.store(0, std::memory_order_relaxed);
  }
  void may_go() noexcept { going_.store(is_plain_ ? block_->address : 0, std::memory_order_relaxed); }

  Block* block_ = nullptr;
  InactiveSplitChange change_;
  std::int64_t turns_ = 0;
  std::int64_t told_turns_ = 0;     // of those
  Atomic<std::uint64_t> going_{0};  // whose free would stand; 0: none would, plainly
  Atomic<std::size_t> coming_{0};   // what the one that stands serves; 0: nothing, plainly
  State state_ = State::in_use;
  bool is_told_ = true;
  bool is_plain_ = false;
};

using LazyFree = BasicLazyFree<HostAtomics>;

// StandingWorth: whether frees stand, where that hides them from other streams, whose walks look for what they know
// (paged memory). A free that stood and never came back was in vain: the next ones are carried out at once,
// twice as many each time; one that came back makes up for all before.
class StandingWorth {
 public:
  // Asked of each block that is handed out.
  [[nodiscard]] bool tries() noexcept {
    if (rest_ == 0) return true;
    --rest_;
    return false;
  }
  // Something else happened to a free that stood.
  void ended(std::int64_t turns) noexcept {
    if (turns != 0) {
      next_rest_ = 1;
      return;
    }
    rest_ = next_rest_;
    next_rest_ = static_cast<std::uint16_t>(next_rest_ < kLongestRest ? 2 * next_rest_ : kLongestRest);
  }

 private:
  static constexpr std::uint16_t kLongestRest = 1024;

  std::uint16_t rest_ = 0;
  std::uint16_t next_rest_ = 1;
};

}  // namespace cistern
