#include "allocator/thread_mark.h"

#include <pthread.h>

#include <mutex>
#include <new>

namespace cistern {

constinit thread_local ThreadMark* ThreadMark::current = nullptr;

// Never destroyed: threads end after static destruction too.
struct FreeThreadMarks {
  FreeThreadMarks() {
    has_key = ::pthread_key_create(&key, [](void* mark) { give_back(mark); }) == 0;
  }

  static FreeThreadMarks& get() {
    static FreeThreadMarks& marks = *new FreeThreadMarks;
    return marks;
  }
  // After the destructors of the thread's own objects, which may still ask.
  static void give_back(void* mark) {
    FreeThreadMarks& marks = get();
    auto* const free = static_cast<ThreadMark*>(mark);
    ThreadMark::current = nullptr;
    const std::lock_guard lock(marks.mutex);
    free->next_free_ = marks.first;
    marks.first = free;
  }
  ThreadMark* take() {
    const std::lock_guard lock(mutex);
    if (first == nullptr) return new ThreadMark;
    ThreadMark* mark = first;
    first = mark->next_free_;
    return mark;
  }

  std::mutex mutex;
  ThreadMark* first = nullptr;
  pthread_key_t key{};
  bool has_key = false;
};

const ThreadMark* ThreadMark::take() noexcept {
  try {
    FreeThreadMarks& marks = FreeThreadMarks::get();
    if (!marks.has_key) return nullptr;
    ThreadMark* mark = marks.take();
    if (::pthread_setspecific(marks.key, mark) != 0) {
      FreeThreadMarks::give_back(mark);
      return nullptr;
    }
    return current = mark;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace cistern
