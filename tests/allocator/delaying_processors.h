#pragma once

// Two threads on processors that hold back what they store as long as the language allows, one step at a
// time and in every order: what is atomic, a lock or a barrier asks a Choices who goes on, and whether
// a store is seen at once, with all before it or before them, or only when the processor must show it. A
// processor sees its own stores, and shows all of them before one that releases, and those to one place in their
// order. What it loads is what is seen by then: that an older value is loaded is not among the orders. What a new
// object holds is stored as all else is, and who finds it before that reads what nobody wrote. To be used as the
// `Processors` of what is lock-free.
//
// Orders are bounded by the times that a thread is stopped although it could go on.

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <stdexcept>

#include "tests/allocator/alternation.h"
#include "tests/races/choices.h"

namespace cistern::testing {

class TwoProcessors {
 public:
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
    alternation_.enter(0);
    current = nullptr;
    self = 0;  // what is done outside is done by the same thread each time
    if (is_stuck_) throw std::logic_error("both threads wait: " + choices.to_string());
    if (has_read_unwritten_) throw std::logic_error("what is not written is read: " + choices.to_string());
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
  Alternation alternation_{[this](std::size_t number) { serve(number); }};  // last: it uses all of the above
};

struct DelayingProcessors {
  template <class T>
  class Atomic {
   public:
    Atomic() : Atomic(T{}) {}
    Atomic(T value) : seen_(value), own_{value, value} {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return;
      is_written_ = false;
      machine->store_new([this] { is_written_ = true; }, this);
    }
    ~Atomic() {
      if (TwoProcessors* const machine = TwoProcessors::current) machine->forget(this);
    }
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;
    [[nodiscard]] T load(std::memory_order) const {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return seen_;
      machine->step();
      if (machine->holds_back(this)) return own_[TwoProcessors::self];
      if (!is_written_) machine->note_unwritten();
      return seen_;
    }
    // One that is to be sequentially consistent waits until it, and all before it, is seen.
    void store(T value, std::memory_order order) {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) {
        seen_ = value;
        return;
      }
      machine->step();
      if (order == std::memory_order_seq_cst) {
        machine->show(TwoProcessors::self);
        seen_ = value;
        return;
      }
      own_[TwoProcessors::self] = value;
      machine->store([this, value] { seen_ = value; }, this, does_release(order));
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order, std::memory_order) {
      return compare_exchange_strong(expected, value, order);
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order) {
      begin_change(order);
      const bool is_equal = seen_ == expected;
      if (is_equal)
        seen_ = value;
      else
        expected = seen_;
      return is_equal;
    }
    T exchange(T value, std::memory_order order) {
      return change(order, [value](T& seen) { seen = value; });
    }
    T fetch_add(T value, std::memory_order order) {
      return change(order, [value](T& seen) { seen += value; });
    }
    T fetch_sub(T value, std::memory_order order) {
      return change(order, [value](T& seen) { seen -= value; });
    }
    T fetch_or(T value, std::memory_order order) {
      return change(order, [value](T& seen) { seen |= value; });
    }
    T fetch_and(T value, std::memory_order order) {
      return change(order, [value](T& seen) { seen &= value; });
    }

   private:
    static bool does_release(std::memory_order order) {
      return order != std::memory_order_relaxed && order != std::memory_order_acquire;
    }
    // What is read and written in one step is seen at once.
    void begin_change(std::memory_order order) {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->show_before(this, does_release(order));
        if (!is_written_) machine->note_unwritten();
      }
    }
    template <class By>
    T change(std::memory_order order, const By& by) {
      begin_change(order);
      const T before = seen_;
      by(seen_);
      return before;
    }
    T seen_;
    std::array<T, 2> own_;  // each thread's newest
    bool is_written_ = true;
  };

  class Mutex {
   public:
    void lock() {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->block_until([this] { return !is_held_; });
      }
      is_held_ = true;
    }
    void unlock() {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->show(TwoProcessors::self);
        machine->wake_other();
      }
      is_held_ = false;
    }

   private:
    bool is_held_ = false;
  };

  using Thread = std::size_t;
  [[nodiscard]] static Thread this_thread() noexcept { return TwoProcessors::self + 1; }
  [[nodiscard]] static Thread this_thread_if_known() noexcept { return this_thread(); }
  [[nodiscard]] static Thread nobody() noexcept { return 99; }
  static void keep_order() noexcept {}
  [[nodiscard]] static bool has_barrier() noexcept { return true; }
  static void pass_barrier() noexcept {
    if (TwoProcessors* const machine = TwoProcessors::current) {
      machine->step();
      machine->show_all();
    }
  }
  static void wait(unsigned) noexcept { TwoProcessors::current->wait_for_other(); }
};

}  // namespace cistern::testing
