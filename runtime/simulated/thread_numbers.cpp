#include "runtime/simulated/thread_numbers.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {
namespace {

struct Numbered {
  std::uint64_t number = 0;
  pid_t process = 0;
};
// Without a destructor, so that a thread keeps its number while its other objects end.
thread_local Numbered this_thread;

void end_thread(void* value) {
  const auto* thread = static_cast<const Numbered*>(value);
  // In a forked child, threads that it does not have may hold the locks of its parent's drivers.
  if (thread->process == getpid()) forget_thread(thread->number);
}

// A key's destructor comes after those of thread-local objects, and not at all when the
// process exits: whatever calls a driver there still finds the thread's streams.
pthread_key_t* exit_key() noexcept {
  static pthread_key_t key;
  static const bool made = pthread_key_create(&key, end_thread) == 0;
  return made ? &key : nullptr;
}

}  // namespace

std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> threads{0};
  if (this_thread.number == 0) {
    this_thread = {++threads, getpid()};
    // Without a key, or the memory for its value, what is kept for the thread stays.
    if (const pthread_key_t* key = exit_key()) static_cast<void>(pthread_setspecific(*key, &this_thread));
  }
  return this_thread.number;
}

}  // namespace cistern::simulated
