#pragma once

// ThreadMark: tells the living threads of the process apart, for what a thread-local pointer costs.
//
// A thread has one mark from its first question on; when it ends, the mark waits for a thread to
// come. So what is kept by mark is bounded by the threads that ever lived at once, and whoever gets a
// mark comes after all that its last owner did. Marks are never destroyed: any thread may ask at any
// time, at exit too.

namespace cistern {

class ThreadMark {
 public:
  // The calling thread's; null if there was no memory for one, and then perhaps later.
  [[nodiscard]] static const ThreadMark* of_this_thread() noexcept {
    const ThreadMark* mark = current;
    return mark != nullptr ? mark : take();
  }
  // The same, and null if it never asked for one.
  [[nodiscard]] static const ThreadMark* if_known() noexcept { return current; }

 private:
  friend struct FreeThreadMarks;
  [[nodiscard, gnu::noinline]] static const ThreadMark* take() noexcept;

  // At a fixed offset of the thread's block: the library is linked or loaded before it is used.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local ThreadMark* current;
  ThreadMark* next_free_ = nullptr;
};

}  // namespace cistern
