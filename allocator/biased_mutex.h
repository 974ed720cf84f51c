#pragma once

// BiasedMutex: a lock that costs the thread which uses it alone no atomic read-modify-write.
//
// It leans towards one thread at a time. That thread says that it is inside, and then looks whether the
// lock still leans towards it: two plain accesses, which the processor may carry out in the other
// order. Any other thread takes the bias away first, has every processor that runs this process pass a
// barrier, and only then looks whether the thread is inside. From then on all go through an ordinary
// mutex, until one thread has it often enough in a row; the more often in vain, the later.
// The flag that a thread sets belongs to it and to this lock: one that was stopped between its look and
// its flag sets and clears nothing but its own when it goes on.
//
// Not recursive. A BasicLockable. O(1); taking a bias away interrupts the other processors once and
// waits for the thread that is inside.

#include "allocator/brief_mutex.h"
#include "allocator/thread_mark.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern {

// What the lock needs of the machine. Tests have one of their own, whose processors delay what they
// store as long as they can.
struct HostProcessors {
  template <class T>
  using Atomic = std::atomic<T>;
  using Mutex = BriefMutex;
  using Thread = const ThreadMark*;

  // Null: the calling thread cannot be told from others.
  [[nodiscard]] static Thread this_thread() noexcept { return ThreadMark::of_this_thread(); }
  // The same, and null, which is no thread that a lock leans towards, if it was never asked for.
  [[nodiscard]] static Thread this_thread_if_known() noexcept { return ThreadMark::if_known(); }
  [[nodiscard]] static Thread nobody() noexcept;
  // Neither the compiler nor a signal handler sees what stands on one side of it on the other.
  static void keep_order() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
  // Whether pass_barrier is cheap enough (Linux 4.14's membarrier).
  [[nodiscard]] static bool has_barrier() noexcept;
  // Every processor that runs a thread of this process has passed a full barrier after it.
  static void pass_barrier() noexcept;
  static void wait(unsigned round) noexcept;
};

template <class Processors>
class BasicBiasedMutex {
 public:
  BasicBiasedMutex() = default;
  BasicBiasedMutex(const BasicBiasedMutex&) = delete;
  BasicBiasedMutex& operator=(const BasicBiasedMutex&) = delete;

  [[gnu::always_inline]] void lock() {
    const Thread self = Processors::this_thread();
    Bias* const bias = bias_.load(std::memory_order_acquire);  // whose thread was written before
    if (bias->thread.load(std::memory_order_relaxed) == self && enter(*bias)) return;
    lock_for_all(self);
  }
  // False: it does not lean towards the calling thread. Otherwise nobody else was inside since that was last, and
  // `leave` follows.
  [[nodiscard, gnu::always_inline]] bool try_enter() {
    Bias* const bias = bias_.load(std::memory_order_acquire);  // as in lock
    return bias->thread.load(std::memory_order_relaxed) == Processors::this_thread_if_known() && enter(*bias);
  }
  [[gnu::always_inline]] void leave() { entered_by_->inside.store(false, std::memory_order_release); }
  [[gnu::always_inline]] void unlock() {
    if (Bias* const bias = entered_by_; bias != nullptr)
      bias->inside.store(false, std::memory_order_release);
    else
      mutex_.unlock();
  }

 private:
  using Thread = typename Processors::Thread;
  template <class T>
  using Atomic = typename Processors::template Atomic<T>;

  // Of one thread, for ever.
  struct Bias {
    Atomic<Thread> thread{Thread{}};  // written before it is found; atomic for tests, which see a missing order so
    Atomic<bool> inside{false};
    std::uint32_t entries = 0;  // since it was given; its thread's while it is inside
  };
  [[nodiscard, gnu::always_inline]] bool enter(Bias& bias) {
    bias.inside.store(true, std::memory_order_relaxed);
    Processors::keep_order();  // the processor's part of it is the other side's barrier
    // Relaxed: its own thread gave it the bias.
    if (bias_.load(std::memory_order_relaxed) == &bias) {
      entered_by_ = &bias;
      ++bias.entries;
      return true;
    }
    // Who took the bias has passed a barrier since this thread was inside; ThreadSanitizer knows of none.
    bias.inside.store(false, std::memory_order_release);
    return false;
  }
  [[gnu::noinline]] void lock_for_all(Thread self);
  void take_bias_away();
  void consider_bias(Thread self);
  [[nodiscard]] Bias* bias_of(Thread self);

  // A row to begin with, and what is not exceeded; entries that make a bias worth its end.
  static constexpr std::uint32_t kLeastRow = 64;
  static constexpr std::uint32_t kLongestRow = std::uint32_t{1} << 16;
  static constexpr std::uint32_t kWorthIt = 4096;
  // Threads that it may lean to, ever (by mark): a hit asks for no host memory.
  static constexpr std::size_t kMostThreads = 16;

  Bias unbiased_{Processors::nobody()};
  Atomic<Bias*> bias_{&unbiased_};  // changed by those who hold mutex_
  Bias* entered_by_ = nullptr;      // the holder's; null: through mutex_
  typename Processors::Mutex mutex_;
  // The rest belongs to those who hold mutex_.
  Thread last_{};
  std::uint32_t in_a_row_ = 0;
  std::uint32_t row_to_bias_ = kLeastRow;
  std::array<Bias, kMostThreads> biases_{};  // used from the front
};

template <class Processors>
void BasicBiasedMutex<Processors>::lock_for_all(Thread self) {
  mutex_.lock();
  take_bias_away();
  entered_by_ = nullptr;
  consider_bias(self);
}

// After the barrier its thread either is seen inside, or sees that the bias is gone.
template <class Processors>
void BasicBiasedMutex<Processors>::take_bias_away() {
  Bias* const bias = bias_.load(std::memory_order_relaxed);
  if (bias == &unbiased_) return;
  bias_.store(&unbiased_, std::memory_order_relaxed);
  Processors::pass_barrier();
  for (unsigned round = 0; bias->inside.load(std::memory_order_acquire); ++round) Processors::wait(round);
  row_to_bias_ = bias->entries >= kWorthIt ? kLeastRow : std::min(row_to_bias_ * 2, kLongestRow);
  last_ = Thread{};
}

template <class Processors>
void BasicBiasedMutex<Processors>::consider_bias(Thread self) {
  if (self != last_ || self == Thread{}) {
    last_ = self;
    in_a_row_ = 0;
  }
  if (++in_a_row_ < row_to_bias_ || self == Thread{} || !Processors::has_barrier()) return;
  if (Bias* const bias = bias_of(self)) {
    bias->entries = 0;
    bias_.store(bias, std::memory_order_release);
  }
}

// Null: there are too many.
template <class Processors>
typename BasicBiasedMutex<Processors>::Bias* BasicBiasedMutex<Processors>::bias_of(Thread self) {
  for (Bias& bias : biases_) {
    const Thread thread = bias.thread.load(std::memory_order_relaxed);
    if (thread == Thread{}) bias.thread.store(self, std::memory_order_relaxed);
    if (thread == Thread{} || thread == self) return &bias;
  }
  return nullptr;
}

using BiasedMutex = BasicBiasedMutex<HostProcessors>;

// For a lock that is held longer, and guards more.
struct PatientProcessors : HostProcessors {
  using Mutex = BasicBriefMutex<32>;
};
using PatientBiasedMutex = BasicBiasedMutex<PatientProcessors>;

}  // namespace cistern
