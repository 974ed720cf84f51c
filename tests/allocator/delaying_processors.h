#pragma once

// Two threads on processors that hold back what they store as long as those of x86-64 may, one step at a
// time and in every order: what is atomic, a lock or a barrier asks a Choices who goes on, and whether
// a store is seen at once or only when the processor must show it. A processor sees its own stores, and
// shows them in their order. To be used as the `Processors` of what is lock-free.
//
// Orders are bounded by the times that a thread is stopped although it could go on.

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "tests/races/choices.h"

namespace cistern::testing {

class TwoProcessors {
 public:
  TwoProcessors() {
    for (std::size_t i = 0; i < 2; ++i) threads_[i] = std::thread([this, i] { serve(i); });
  }
  ~TwoProcessors() {
    programs_ = {};
    for (std::size_t i = 0; i < 2; ++i) go_on(i);
    for (std::thread& thread : threads_) thread.join();
  }
  TwoProcessors(const TwoProcessors&) = delete;
  TwoProcessors& operator=(const TwoProcessors&) = delete;

  // Runs both to their ends, one step at a time. Throws std::logic_error if both wait for each other.
  void run(Choices& choices, int most_stops, std::function<void()> first, std::function<void()> second) {
    choices_ = &choices;
    stops_left_ = most_stops;
    programs_ = {std::move(first), std::move(second)};
    is_done_ = {};
    waits_ = {};
    is_stuck_ = false;
    go_on(0);
    finished_.acquire();
    if (is_stuck_) throw std::logic_error("both threads wait");
  }

  // Before each step: perhaps the other one goes first.
  void step() {
    if (is_done_[1 - self] || waits_[1 - self] || stops_left_ == 0) return;
    if (choices_->choose(2) == 0) return;
    --stops_left_;
    let_other_run();
  }
  void store(std::function<void()> make_visible, const void* place) {
    stores_[self].push_back({std::move(make_visible), place});
    if (choices_->choose(2) == 0) show(self);
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
  struct Store {
    std::function<void()> make_visible;
    const void* place;
  };
  void serve(std::size_t number) {
    current = this;
    self = number;
    for (turns_[number].acquire(); programs_[number]; turns_[number].acquire()) {
      programs_[number]();
      show(number);
      is_done_[number] = true;
      if (is_done_[1 - number])
        finished_.release();
      else
        go_on(1 - number);
    }
  }
  void go_on(std::size_t thread) { turns_[thread].release(); }
  void let_other_run() {
    go_on(1 - self);
    turns_[self].acquire();
  }

  Choices* choices_ = nullptr;
  int stops_left_ = 0;
  std::array<std::function<void()>, 2> programs_;  // none: the threads end
  std::array<std::binary_semaphore, 2> turns_{std::binary_semaphore(0), std::binary_semaphore(0)};
  std::binary_semaphore finished_{0};
  std::array<std::deque<Store>, 2> stores_;
  std::array<bool, 2> is_done_{};
  std::array<bool, 2> waits_{};
  bool is_stuck_ = false;
  std::array<std::thread, 2> threads_;  // last: they use all of the above
};

struct DelayingProcessors {
  template <class T>
  class Atomic {
   public:
    Atomic() = default;
    Atomic(T value) : seen_(value), own_{value, value} {}
    [[nodiscard]] T load(std::memory_order) const {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return seen_;
      machine->step();
      return machine->holds_back(this) ? own_[TwoProcessors::self] : seen_;
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
      machine->store([this, value] { seen_ = value; }, this);
    }
    // As on x86-64 a barrier too, whatever order is asked for.
    bool compare_exchange_strong(T& expected, T value, std::memory_order) {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->show(TwoProcessors::self);
      }
      const bool is_equal = seen_ == expected;
      if (is_equal)
        seen_ = value;
      else
        expected = seen_;
      return is_equal;
    }
    T fetch_add(T value, std::memory_order) {
      return change([value](T& seen) { seen += value; });
    }
    T fetch_or(T value, std::memory_order) {
      return change([value](T& seen) { seen |= value; });
    }
    T fetch_and(T value, std::memory_order) {
      return change([value](T& seen) { seen &= value; });
    }

   private:
    // At once, and a barrier as well.
    template <class By>
    T change(const By& by) {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->show(TwoProcessors::self);
      }
      const T before = seen_;
      by(seen_);
      return before;
    }
    T seen_{};
    std::array<T, 2> own_{};  // each thread's newest
  };

  class Mutex {
   public:
    void lock() {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->block_until([this] { return !is_held_; });
        machine->show(TwoProcessors::self);
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
