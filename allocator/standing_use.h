#pragma once

// StandingUse: what another stream has of the block that stands (LazyFree), and keeps from turn to turn.
//
// Programs have another stream use what they allocated last, free it, and ask for the same again. From the second such
// turn in a row on the use and its event stay here: neither is written down with the block or among the frees that
// wait, and nothing counts once more that the stream is in use, which lives as long as its use is kept. Whatever else
// happens to the block, and whoever takes the heap's lock, has that done first (StreamHits::tell_standing_use).
// O(1). Not thread-safe: guarded by the stream's lock, but for `use` while its event is recorded. `is_used` and
// `has_event` may be asked without it, by whom BiasedMutex::try_enter lets in then: what they said holds inside.

#include "allocator/awaited_frees.h"
#include "allocator/block.h"
#include "allocator/use_nodes.h"
#include "stats/host_atomics.h"

#include <atomic>
#include <cstdint>
#include <utility>

namespace cistern {

template <class Processors>
class BasicStandingUse {
 public:
  // The block that stands got its first use since it was handed out, which was written down. Whether the one before it
  // was of the same stream.
  [[nodiscard]] bool comes_again(const StreamUse& use) noexcept {
    return std::exchange(last_user_, use.stream.id) == use.stream.id;
  }
  // Keeps it; `use` has what was kept before. Throws std::bad_alloc, unchanged. Requires: it is not in use.
  void keep(StreamUse& use, UseNodes& nodes) {
    if (uses_.empty())
      nodes.insert(uses_, uses_.before_begin(), std::move(use));
    else
      std::swap(uses_.front(), use);
  }
  [[nodiscard]] bool is_kept() const noexcept { return !uses_.empty(); }
  // `is_owned`: who uses it wants the stream kept alive, which the use then does.
  [[nodiscard]] bool is_of(const StreamIdentity& stream, int device, bool is_owned) const noexcept {
    return is_kept() && uses_.front().stream.id == stream.id && uses_.front().device == device &&
           (!is_owned || uses_.front().owner != nullptr);
  }
  [[nodiscard]] const StreamUse& use() const noexcept { return uses_.front(); }

  // In turn: it uses the block; the block is freed, and an event is recorded; that came.
  void begin() noexcept { be(State::used); }
  void free(AwaitedFrees::Recording& recording, std::uint64_t number, std::uint64_t freed_at) noexcept {
    be(State::recording);
    recording_ = &recording;
    number_ = number;
    freed_at_ = freed_at;
  }
  // False: somebody told of it meanwhile.
  [[nodiscard]] bool is_recorded_by(const AwaitedFrees::Recording& recording) const noexcept {
    return state() == State::recording && recording_ == &recording;
  }
  void await(CUevent event) noexcept {
    be(State::awaited);
    event_ = event;
  }
  void end() noexcept { be(State::none); }

  [[nodiscard]] bool is_used() const noexcept { return state() == State::used; }
  [[nodiscard]] bool waits() const noexcept { return state() >= State::recording; }
  [[nodiscard]] bool has_event() const noexcept { return state() == State::awaited; }
  [[nodiscard]] bool is_told() const noexcept { return state() == State::none; }
  // Who records; what is to be known of the free that waits.
  [[nodiscard]] AwaitedFrees::Recording& recording() const noexcept { return *recording_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] std::uint64_t freed_at() const noexcept { return freed_at_; }
  [[nodiscard]] CUevent event() const noexcept { return event_; }
  // The event of the turn before, for this one; null: there is none.
  [[nodiscard]] CUevent take_event() noexcept { return std::exchange(event_, nullptr); }
  // The use moves to others, or goes. Requires: it is kept.
  void move_to(StreamUses& uses) noexcept { uses.splice_after(uses.before_begin(), uses_, uses_.before_begin()); }

 private:
  enum class State : std::uint8_t { none, used, recording, awaited };

  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_relaxed); }
  void be(State state) noexcept { state_.store(state, std::memory_order_relaxed); }

  StreamUses uses_;  // one at most
  CUevent event_ = nullptr;
  std::uint64_t number_ = 0;
  // Between two numbers: side by side these are written as one, which is read behind its parts.
  AwaitedFrees::Recording* recording_ = nullptr;
  std::uint64_t freed_at_ = 0;
  std::uint64_t last_user_ = 0;
  typename Processors::template Atomic<State> state_{State::none};
};

using StandingUse = BasicStandingUse<HostAtomics>;

}  // namespace cistern
