#pragma once

// Two threads on processors that hold back what they store, and load what is no longer true, one step at a time and in
// every order: what is atomic, a lock or a barrier asks a Choices who goes on, whether a store is seen at once, with
// all before it or before them, or only when the processor must show it, and which value is loaded. A processor sees
// its own stores, and shows all of them before one that releases, and those to one place in their order. A value that
// another has taken the place of is loaded until the thread has acquired what was released after that, or has read the
// place's newer value; and what it stores may come before a value that it need not know of, as if it never was. Loads
// and stores that are sequentially consistent are so among each other alone. What a new object holds is stored as all
// else is, and who finds it before that reads what nobody wrote. To be used as the `Processors` of what is lock-free.
//
// The language allows more: a load that reads what is stored after it, an order of the sequentially consistent steps
// that is not that of the walk. Orders are bounded by the times that a thread is stopped although it could go on, by
// kMostLate, and by the values that a place remembers.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <span>

#include "tests/allocator/two_processors.h"

namespace cistern::testing {

struct DelayingProcessors {
  template <class T>
  class Atomic {
   public:
    Atomic() : Atomic(T{}) {}
    Atomic(T value) : versions_{{{.value = value}}}, own_{value, value} {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return;
      versions_[0].is_written = false;
      machine->store_new(become({.value = value}, *machine), this);
    }
    ~Atomic() {
      if (TwoProcessors* const machine = TwoProcessors::current) machine->forget(this);
    }
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;
    [[nodiscard]] T load(std::memory_order order) const {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return versions_[0].value;
      machine->step();
      if (machine->holds_back(this)) return own_[TwoProcessors::self];
      const std::size_t late = come_late(TwoProcessors::self, count_ - 1, order, *machine);
      return read(versions_[late], order, *machine);
    }
    // One that is to be sequentially consistent waits until it, and all before it, is seen.
    void store(T value, std::memory_order order) {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return set_alone(value);
      machine->step();
      const Version stored = {.value = value, .order = order};
      if (order == std::memory_order_seq_cst) {
        machine->show(TwoProcessors::self);
        become(stored, *machine)();
        return;
      }
      own_[TwoProcessors::self] = value;
      machine->store(become(stored, *machine), this, does_release(order));
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order) {
      return compare_exchange_strong(expected, value, order, order_of_failing(order));
    }
    // One that fails is a load with an order of its own, and may find another value than the newest.
    bool compare_exchange_strong(T& expected, T value, std::memory_order order, std::memory_order failing) {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) {
        const bool is_equal = versions_[0].value == expected;
        if (is_equal)
          set_alone(value);
        else
          expected = versions_[0].value;
        return is_equal;
      }
      machine->step();
      if (machine->holds_back(this)) machine->show(TwoProcessors::self);
      const std::size_t late = come_late(TwoProcessors::self, count_ - 1, failing, *machine);
      const Version& found = versions_[versions_[late].value == expected ? 0 : late];
      if (found.value != expected) {
        expected = read(found, failing, *machine);
        return false;
      }
      machine->show_before(this, does_release(order));
      static_cast<void>(read(versions_[0], order, *machine));
      end_change(value, order);
      return true;
    }
    T exchange(T value, std::memory_order order) {
      return change(order, [value](T) { return value; });
    }
    T fetch_add(T value, std::memory_order order) {
      return change(order, [value](T seen) { return static_cast<T>(seen + value); });
    }
    T fetch_sub(T value, std::memory_order order) {
      return change(order, [value](T seen) { return static_cast<T>(seen - value); });
    }
    T fetch_or(T value, std::memory_order order) {
      return change(order, [value](T seen) { return static_cast<T>(seen | value); });
    }
    T fetch_and(T value, std::memory_order order) {
      return change(order, [value](T seen) { return static_cast<T>(seen & value); });
    }

   private:
    using Time = TwoProcessors::Time;
    struct Version {
      T value;
      std::memory_order order = std::memory_order_relaxed;  // of its store
      bool is_change = false;                               // read and stored in one step
      bool is_written = true;
      Time seen_at = 0;
      Time released_at = 0;  // what whoever acquires it learns; 0: nothing
    };
    // The newest, and three before it.
    static constexpr std::size_t kVersions = 4;

    static bool does_release(std::memory_order order) {
      return order != std::memory_order_relaxed && order != std::memory_order_acquire;
    }
    static std::memory_order order_of_failing(std::memory_order order) {
      if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
      return order == std::memory_order_release ? std::memory_order_relaxed : order;
    }
    static bool does_acquire(std::memory_order order) {
      return order != std::memory_order_relaxed && order != std::memory_order_release;
    }

    // How many of the newest `most` versions the thread comes before, with that order.
    [[nodiscard]] std::size_t come_late(std::size_t thread, std::size_t most, std::memory_order order,
                                        TwoProcessors& machine) const {
      std::array<Time, kVersions> times{};
      Time known = read_at_[thread];
      for (std::size_t i = 0; i < most; ++i) {
        times[i] = versions_[i].seen_at;
        const bool is_ordered = order == std::memory_order_seq_cst && versions_[i].order == order;
        if (is_ordered) known = std::max(known, times[i]);
      }
      return machine.come_late(thread, std::span(times).first(most), known);
    }
    T read(const Version& version, std::memory_order order, TwoProcessors& machine) const {
      if (!version.is_written) machine.note_unwritten();
      if (does_acquire(order)) machine.learn(version.released_at);
      Time& read_at = read_at_[TwoProcessors::self];
      read_at = std::max(read_at, version.seen_at);
      return version.value;
    }
    // Makes it the newest, as the calling thread's, or older than what that need not know.
    std::function<void()> become(Version version, TwoProcessors& machine) {
      return [this, version, &machine, writer = TwoProcessors::self] {
        const std::size_t late = come_late(writer, stores_to_pass(), version.order, machine);
        insert(late, version, machine);
        read_at_[writer] = std::max(read_at_[writer], versions_[late].seen_at);
      };
    }
    // Of the newest. Nothing comes between a change and what that has read; that something comes before both is not
    // among the orders.
    [[nodiscard]] std::size_t stores_to_pass() const {
      std::size_t passed = 0;
      while (passed + 1 < count_ && !versions_[passed].is_change) ++passed;
      return passed;
    }
    void insert(std::size_t late, const Version& version, TwoProcessors& machine) {
      const Time below = versions_[late].seen_at;
      count_ = std::min(count_ + 1, kVersions);
      std::shift_right(versions_.begin() + static_cast<std::ptrdiff_t>(late), versions_.end(), 1);
      Version& inserted = versions_[late];
      inserted = version;
      const Time now = machine.tick();
      inserted.seen_at = late == 0 ? now : below;
      if (does_release(version.order)) inserted.released_at = now;
    }
    void set_alone(T value) {
      versions_[0] = {.value = value};
      count_ = 1;
    }

    // What is read and written in one step is the newest, and seen at once. It hands on what was released before it.
    T begin_change(std::memory_order order) {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return versions_[0].value;
      machine->step();
      machine->show_before(this, does_release(order));
      return read(versions_[0], order, *machine);
    }
    void end_change(T value, std::memory_order order) {
      TwoProcessors* const machine = TwoProcessors::current;
      if (machine == nullptr) return set_alone(value);
      insert(0, {.value = value, .order = order, .is_change = true, .released_at = versions_[0].released_at}, *machine);
      read_at_[TwoProcessors::self] = versions_[0].seen_at;
    }
    template <class By>
    T change(std::memory_order order, const By& by) {
      const T before = begin_change(order);
      end_change(by(before), order);
      return before;
    }

    std::array<Version, kVersions> versions_;  // newest first
    std::size_t count_ = 1;
    std::array<T, 2> own_;                   // what each thread stored last
    mutable std::array<Time, 2> read_at_{};  // when what each thread has read last was seen
  };

  class Mutex {
   public:
    void lock() {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->block_until([this] { return !is_held_; });
        machine->learn(released_at_);
      }
      is_held_ = true;
    }
    void unlock() {
      if (TwoProcessors* const machine = TwoProcessors::current) {
        machine->step();
        machine->show(TwoProcessors::self);
        released_at_ = machine->tick();
        machine->wake_other();
      }
      is_held_ = false;
    }

   private:
    bool is_held_ = false;
    TwoProcessors::Time released_at_ = 0;
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
      machine->pass_barrier();
    }
  }
  static void wait(unsigned) noexcept { TwoProcessors::current->wait_for_other(); }
};

}  // namespace cistern::testing
