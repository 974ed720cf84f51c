#pragma once

// A plain heap that is followed where its steps come again, beside one that carries each of them out.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "allocator/recurrence.h"

namespace cistern {

// First fit by address, of 1 GiB; a block is as large as what was asked for, in units of 512 bytes. One that others use
// waits between its free and its end.
class FirstFit {
 public:
  using Blocks = std::map<std::uint64_t, std::uint64_t>;  // what was asked for, by address

  std::uint64_t allocate(std::uint64_t requested) {
    std::uint64_t at = kBegin;
    for (const auto& [address, asked] : live_) {
      if (address - at >= rounded(requested)) break;
      at = address + rounded(asked);
    }
    live_.emplace(at, requested);
    return at;
  }
  void free(std::uint64_t address) {
    if (used_.contains(address)) throw std::logic_error("what is freed at once is used by others");
    erase(address);
  }
  void use(std::uint64_t address) {
    if (!live_.contains(address) || waiting_.contains(address) || !used_.insert(address).second)
      throw std::logic_error("what is used is no live block, or is used already");
  }
  void wait(std::uint64_t address) {
    if (used_.erase(address) != 1) throw std::logic_error("what waits is not used by others");
    waiting_.insert(address);
  }
  void end(std::uint64_t address) {
    if (waiting_.erase(address) != 1) throw std::logic_error("what ends does not wait");
    erase(address);
  }
  // With those that wait.
  [[nodiscard]] const Blocks& live() const { return live_; }
  [[nodiscard]] const std::set<std::uint64_t>& used() const { return used_; }
  [[nodiscard]] const std::set<std::uint64_t>& waiting() const { return waiting_; }
  friend bool operator==(const FirstFit&, const FirstFit&) = default;
  [[nodiscard]] static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 511) / 512 * 512; }

 private:
  static constexpr std::uint64_t kBegin = std::uint64_t{1} << 40;

  void erase(std::uint64_t address) {
    if (live_.erase(address) != 1) throw std::logic_error("what is freed is no live block");
  }

  Blocks live_;
  std::set<std::uint64_t> used_;
  std::set<std::uint64_t> waiting_;
};

class FollowedHeap {
 public:
  // Of all that came, whether it was followed or not.
  struct Totals {
    std::array<std::int64_t, 5> steps{};  // by kind
    std::int64_t bytes = 0;
    friend bool operator==(const Totals&, const Totals&) = default;
  };

  // Of four times that it may follow, it does not so often.
  explicit FollowedHeap(std::size_t most_steps = std::size_t{1} << 18, unsigned offers_left = 0)
      : most_steps_(most_steps), offers_left_(offers_left) {}

  std::uint64_t allocate(std::uint64_t requested) {
    count(told_, Kind::allocation, 1, requested);
    const std::uint64_t expected = plain_.allocate(requested);
    const std::uint64_t address = allocate_followed(requested);
    if (address != expected) throw std::logic_error("a request was served otherwise than by the plain heap");
    return address;
  }
  // Of one that is not used, or that is; the latter's end comes later.
  void free(std::uint64_t address) {
    if (plain_.used().contains(address)) return step(Kind::wait, address);
    step(Kind::free, address);
  }
  void use(std::uint64_t address) { step(Kind::use, address); }
  void end(std::uint64_t address) { step(Kind::done, address); }
  // Who looks finds all of it carried out, and what is known is forgotten if something else happens.
  void look(bool something_else_happens = true) {
    if (steps_.is_followed()) {
      stop();
      if (!something_else_happens) steps_.go_on();
    }
    if (something_else_happens) {
      steps_.cut();
      provide();
    }
    if (heap_ != plain_) throw std::logic_error("what was followed was carried out otherwise");
    if (!(carried_out_ == told_)) throw std::logic_error("what was followed was counted otherwise");
  }
  [[nodiscard]] const FirstFit& plain() const { return plain_; }
  [[nodiscard]] const FirstFit::Blocks& live() const { return plain_.live(); }
  // Steps.
  [[nodiscard]] std::int64_t followed() const { return followed_; }
  [[nodiscard]] std::int64_t told() const { return std::accumulate(told_.steps.begin(), told_.steps.end(), 0L); }
  // It may follow so many steps from now on.
  void allow(std::size_t most_steps) { most_steps_ = most_steps; }
  // What it has room for: steps.
  [[nodiscard]] std::size_t room() const { return room_; }
  // How often steps might be followed from then on.
  [[nodiscard]] unsigned offers() const { return offers_; }

 private:
  using Kind = StreamStep::Kind;

  static void count(Totals& totals, Kind kind, std::int64_t times, std::uint64_t requested) {
    totals.steps[static_cast<std::size_t>(kind)] += times;
    if (kind == Kind::allocation) totals.bytes += times * static_cast<std::int64_t>(requested);
  }
  // What is no allocation.
  static void change(FirstFit& heap, Kind kind, std::uint64_t address) {
    if (kind == Kind::free) heap.free(address);
    if (kind == Kind::use) heap.use(address);
    if (kind == Kind::wait) heap.wait(address);
    if (kind == Kind::done) heap.end(address);
  }
  void step(Kind kind, std::uint64_t address) {
    count(told_, kind, 1, 0);
    const std::uint64_t requested = plain_.live().at(address);
    change(plain_, kind, address);
    if (steps_.is_followed()) {
      if (steps_.expects(kind, address)) {
        steps_.follow_next();
        return count_followed();
      }
      stop();
      steps_.go_on();
    }
    change(heap_, kind, address);
    count(carried_out_, kind, 1, 0);
    note(kind, address, requested);
  }
  std::uint64_t allocate_followed(std::uint64_t requested) {
    if (steps_.is_followed()) {
      if (steps_.expects_allocation(requested)) {
        const StreamStep& step = steps_.follow_next();
        count_followed();
        if (step.bytes() != FirstFit::rounded(requested)) throw std::logic_error("the size of a step");
        return step.address();
      }
      stop();
      steps_.go_on();
    }
    provide();
    const std::uint64_t address = heap_.allocate(requested);
    count(carried_out_, Kind::allocation, 1, requested);
    note(StreamStep::Kind::allocation, address, requested);
    return address;
  }
  void note(StreamStep::Kind kind, std::uint64_t address, std::uint64_t requested) {
    if (steps_.passes_over()) return;
    if (!steps_.learns()) return steps_.note(kind, address, requested);
    if (!steps_.learn(kind, {address, FirstFit::rounded(requested), requested, PoolKind::large}, {})) return;
    if (++offers_ % 4 >= offers_left_) steps_.follow();
  }
  void provide() {
    if (!steps_.wants_room()) return;
    const std::size_t wanted = steps_.wanted(most_steps_);
    room_ = std::max(room_, wanted);
    Recurrence::Room gone = steps_.take(wanted == 0 ? Recurrence::Room() : Recurrence::Room::of(wanted));
    // Nobody looks at it any more.
    std::fill_n(gone.steps(), gone.size(), StreamStep(StreamStep::Kind::allocation, {}, {}));
  }
  void count_followed() { ++followed_; }
  void stop() {
    steps_.stop([this](const StreamStep& step,
                       std::int64_t times) { count(carried_out_, step.kind(), times, step.requested()); },
                [this](const StreamStep& step) {
                  count(carried_out_, step.kind(), 1, step.requested());
                  if (step.kind() != Kind::allocation) return change(heap_, step.kind(), step.address());
                  if (heap_.allocate(step.requested()) != step.address())
                    throw std::logic_error("a step leads elsewhere");
                });
  }

  std::size_t most_steps_;
  std::size_t room_ = 0;
  unsigned offers_left_;
  unsigned offers_ = 0;
  FirstFit plain_;
  FirstFit heap_;
  Recurrence steps_;
  Totals told_;
  Totals carried_out_;
  std::int64_t followed_ = 0;
};

}  // namespace cistern
