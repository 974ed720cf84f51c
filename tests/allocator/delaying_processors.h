#pragma once

// Two threads on processors that hold back what they store, and load what is no longer true, as long as the
// language allows, one step at a time and in every order: what is atomic, a lock or a barrier asks a Choices who goes
// on, whether a store is seen at once, with all before it or before them, or only when the processor must show it, and
// which value is loaded. A processor sees its own stores, and shows all of them before one that releases, and those to
// one place in their order. A value that another has taken the place of is loaded until the thread has acquired what
// was released after that, or has read the place's newer value; and what it stores may come before a value that it need
// not know of, as if it never was. Loads and stores that are sequentially consistent are so among each other
// alone. What a new object holds is stored as all else is, and who
// finds it before that reads what nobody wrote. To be used as the `Processors` of what is lock-free.
//
// Orders are bounded by the times that a thread is stopped although it could go on, and by kMostLate.

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
    bool compare_exchange_strong(T& expected, T value, std::memory_order order, std::memory_order) {
      return compare_exchange_strong(expected, value, order);
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order) {
      const T before = begin_change(order);
      const bool is_equal = before == expected;
      if (is_equal)
        end_change(value, order);
      else
        expected = before;
      return is_equal;
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
    // The newest and as many that it has taken the place of.
    static constexpr std::size_t kVersions = 4;

    static bool does_release(std::memory_order order) {
      return order != std::memory_order_relaxed && order != std::memory_order_acquire;
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
    // Of the newest: nothing comes between a change and what that has read.
    [[nodiscard]] std::size_t stores_to_pass() const {
      std::size_t passed = 0;
      while (passed + 1 < count_ && !versions_[passed].is_change) ++passed;
      return passed;
    }
    void insert(std::size_t late, const Version& version, TwoProcessors& machine) {
      count_ = std::min(count_ + 1, kVersions);
      std::shift_right(versions_.begin() + static_cast<std::ptrdiff_t>(late), versions_.end(), 1);
      Version& inserted = versions_[late];
      inserted = version;
      const Time now = machine.tick();
      inserted.seen_at = late == 0 ? now : versions_[late + 1].seen_at;
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
