#pragma once

// Two flows of control of which one runs at a time, and says who goes on.
//
// Without a sanitizer they are two stacks of one thread: to go from one to the other takes a hundredth of what threads
// take that wake each other. Sanitizers look for stacks where threads have them, and get threads.

#include <array>
#include <cstddef>
#include <functional>
#include <utility>

#include "tests/sanitizers.h"

#if CISTERN_ADDRESS_SANITIZER || CISTERN_THREAD_SANITIZER
#define CISTERN_ALTERNATES_THREADS 1
#include <semaphore>
#include <thread>
#else
#define CISTERN_ALTERNATES_THREADS 0
#include <ucontext.h>

#include <memory>
#endif

namespace cistern::testing {

#if !CISTERN_ALTERNATES_THREADS

class Alternation {
 public:
  // serve(i) is flow i, 0 or 1: it begins when it goes on first.
  explicit Alternation(std::function<void(std::size_t)> serve) : serve_(std::move(serve)) {
    ::getcontext(&contexts_[0]);  // not in the loop: it returns twice, as far as the compiler knows
    ::getcontext(&contexts_[1]);
    for (std::size_t flow = 0; flow < 2; ++flow) {
      stacks_[flow] = std::make_unique<std::byte[]>(kStackBytes);
      contexts_[flow].uc_stack.ss_sp = stacks_[flow].get();
      contexts_[flow].uc_stack.ss_size = kStackBytes;
      ::makecontext(&contexts_[flow], &Alternation::enter, 0);
    }
  }
  Alternation(const Alternation&) = delete;
  Alternation& operator=(const Alternation&) = delete;

  // By who made it: the flow goes on, until one of them leaves.
  void enter(std::size_t flow) {
    entered_ = {this, flow};
    ::swapcontext(&outside_, &contexts_[flow]);
  }
  // By a flow: the other goes on, until that lets this one.
  void let_other_run(std::size_t self) {
    entered_ = {this, 1 - self};
    ::swapcontext(&contexts_[self], &contexts_[1 - self]);
  }
  // By a flow: who entered goes on.
  void leave(std::size_t self) { ::swapcontext(&contexts_[self], &outside_); }
  // What flow is to end.
  [[nodiscard]] static bool is_over() { return false; }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  static void enter() {
    const auto [alternation, flow] = entered_;
    alternation->serve_(flow);
  }

  // What a flow that begins is to be.
  static inline thread_local std::pair<Alternation*, std::size_t> entered_;

  std::function<void(std::size_t)> serve_;
  ucontext_t outside_{};
  std::array<ucontext_t, 2> contexts_{};
  std::array<std::unique_ptr<std::byte[]>, 2> stacks_;
};

#else

class Alternation {
 public:
  explicit Alternation(std::function<void(std::size_t)> serve) : serve_(std::move(serve)) {
    for (std::size_t flow = 0; flow < 2; ++flow)
      threads_[flow] = std::thread([this, flow] {
        turns_[flow].acquire();
        if (!is_over_) serve_(flow);
      });
  }
  ~Alternation() {
    is_over_ = true;
    for (std::size_t flow = 0; flow < 2; ++flow) turns_[flow].release();
    for (std::thread& thread : threads_) thread.join();
  }
  Alternation(const Alternation&) = delete;
  Alternation& operator=(const Alternation&) = delete;

  void enter(std::size_t flow) {
    turns_[flow].release();
    outside_.acquire();
  }
  void let_other_run(std::size_t self) {
    turns_[1 - self].release();
    turns_[self].acquire();
  }
  void leave(std::size_t self) {
    outside_.release();
    turns_[self].acquire();
  }
  [[nodiscard]] bool is_over() const { return is_over_; }

 private:
  std::function<void(std::size_t)> serve_;
  bool is_over_ = false;
  std::binary_semaphore outside_{0};
  std::array<std::binary_semaphore, 2> turns_{std::binary_semaphore(0), std::binary_semaphore(0)};
  std::array<std::thread, 2> threads_;  // last: they use all of the above
};

#endif

}  // namespace cistern::testing
