#pragma once

// Two threads of one program, one step at a time and in every order; and what of each other's stores they need not
// know. DelayingProcessors has what they run on.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <stdexcept>

#include "tests/allocator/alternation.h"
#include "tests/races/choices.h"

namespace cistern::testing {

class TwoProcessors {
 public:
  // Of what is seen: a number that grows with every value that takes another's place. 0: before all of them.
  using Time = std::uint64_t;

  TwoProcessors() = default;
  TwoProcessors(const TwoProcessors&) = delete;
  TwoProcessors& operator=(const TwoProcessors&) = delete;

  // Runs both to their ends, one step at a time. Throws std::logic_error if both wait for each other, or one read what
  // was not written.
  void run(Choices& choices, int most_stops, std::function<void()> first, std::function<void()> second) {
    choices_ = &choices;
    stops_left_ = most_stops;
    programs_ = {std::move(first), std::move(second)};
    is_done_ = {};
    waits_ = {};
    is_stuck_ = has_read_unwritten_ = false;
    late_left_ = kMostLate;
    known_ = {now_, now_};
    alternation_.enter(0);
    current = nullptr;
    self = 0;  // what is done outside is done by the same thread each time
    if (is_stuck_) throw std::logic_error("both threads wait: " + choices.to_string());
    if (has_read_unwritten_) throw std::logic_error("what is not written is read: " + choices.to_string());
  }

  Time tick() { return ++now_; }
  // The calling thread has acquired what was released then: it knows what was seen by that time.
  void learn(Time released_at) { known_[self] = std::max(known_[self], released_at); }
  void learn_all() { learn(now_); }
  // A place's values, newest first, took each other's place at `times`. How many of the newest the thread comes before
  // when it loads or stores there: 0, or as many as it need not know. It knows those up to `known`, too.
  [[nodiscard]] std::size_t come_late(std::size_t thread, std::span<const Time> times, Time known) {
    if (late_left_ == 0) return 0;
    known = std::max(known, known_[thread]);
    std::size_t unknown = 0;
    while (unknown < times.size() && times[unknown] > known) ++unknown;
    const std::size_t chosen = unknown == 0 ? 0 : choices_->choose(unknown + 1);
    if (chosen != 0) --late_left_;
    return chosen;
  }

  // Before each step: perhaps the other one goes first.
  void step() {
    if (is_done_[1 - self] || waits_[1 - self] || stops_left_ == 0) return;
    if (choices_->choose(2) == 0) return;
    --stops_left_;
    let_other_run();
  }
  void store(std::function<void()> make_visible, const void* place, bool releases) {
    std::deque<Store>& stores = stores_[self];
    const bool may_pass = !releases && !stores.empty() && !holds_back(place);
    stores.push_back({std::move(make_visible), place});
    // The other does not go on before this one ends or waits.
    if (!may_be_stopped()) return show(self);
    const std::size_t choice = choices_->choose(may_pass ? 3 : 2);
    if (choice == 0) show(self);
    if (choice == 2) {
      stores.back().make_visible();
      stores.pop_back();
    }
  }
  // The store of what a new object holds: held back, at first.
  void store_new(std::function<void()> make_visible, const void* place) {
    stores_[self].push_back({std::move(make_visible), place});
    if (!may_be_stopped()) show(self);
  }
  // What was to be stored there goes with it.
  void forget(const void* place) {
    for (std::deque<Store>& stores : stores_)
      std::erase_if(stores, [place](const Store& store) { return store.place == place; });
  }
  void note_unwritten() { has_read_unwritten_ = true; }
  // Before the calling thread changes that place at once.
  void show_before(const void* place, bool releases) {
    if (releases || holds_back(place)) show(self);
  }
  // Whether the calling thread's own store to it is still held back.
  [[nodiscard]] bool holds_back(const void* place) const {
    for (const Store& store : stores_[self])
      if (store.place == place) return true;
    return false;
  }
  void show(std::size_t thread) {
    for (; !stores_[thread].empty(); stores_[thread].pop_front()) stores_[thread].front().make_visible();
  }
  void show_all() {
    show(0);
    show(1);
  }
  // As if both had passed a barrier: each has shown what it stored, and knows what is seen.
  void pass_barrier() {
    show_all();
    known_ = {now_, now_};
  }
  // The calling thread can only wait for the other.
  void wait_for_other() {
    show_all();  // no store is held back for ever
    if (!is_done_[1 - self] && !waits_[1 - self]) let_other_run();
  }
  // Until `is_free`.
  template <class IsFree>
  void block_until(IsFree&& is_free) {
    while (!is_free()) {
      show(self);
      waits_[self] = true;
      if (is_done_[1 - self] || waits_[1 - self]) {
        is_stuck_ = true;
        waits_[self] = false;
        return;
      }
      let_other_run();
      waits_[self] = false;
    }
  }
  void wake_other() { waits_[1 - self] = false; }

  // Loads of an older value, and stores before one that is there, of one order.
  static constexpr int kMostLate = 2;
  static inline thread_local TwoProcessors* current = nullptr;  // null: outside, all is seen at once
  static inline thread_local std::size_t self = 0;

 private:
  [[nodiscard]] bool may_be_stopped() const { return !is_done_[1 - self] && stops_left_ != 0; }
  struct Store {
    std::function<void()> make_visible;
    const void* place;
  };
  void serve(std::size_t number) {
    for (take_turn(number); !alternation_.is_over(); take_turn(number)) {
      programs_[number]();
      step();  // before all that it stored is seen
      show(number);
      is_done_[number] = true;
      if (is_done_[1 - number])
        alternation_.leave(number);
      else
        alternation_.let_other_run(number);
    }
  }
  // The two may be on one thread.
  void take_turn(std::size_t number) {
    current = this;
    self = number;
  }
  void let_other_run() {
    const std::size_t number = self;
    alternation_.let_other_run(number);
    take_turn(number);
  }

  Choices* choices_ = nullptr;
  int stops_left_ = 0;
  std::array<std::function<void()>, 2> programs_;
  std::array<std::deque<Store>, 2> stores_;
  std::array<bool, 2> is_done_{};
  std::array<bool, 2> waits_{};
  bool is_stuck_ = false;
  bool has_read_unwritten_ = false;
  int late_left_ = 0;
  Time now_ = 0;
  std::array<Time, 2> known_{};                                             // by each thread: what was seen by then
  Alternation alternation_{[this](std::size_t number) { serve(number); }};  // last: it uses all of the above
};

}  // namespace cistern::testing
