#include "runtime/event_pool.h"

#include <algorithm>
#include <new>

namespace cistern {

EventPool::~EventPool() {
  // A refusal means that the driver is gone already, and the events with it.
  for (const CUevent event : idle_) static_cast<void>(api_.event_destroy(event));
}

CUresult EventPool::acquire(CUevent* event) try {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      *event = idle_.back();
      idle_.pop_back();
      return CUDA_SUCCESS;
    }
    // Room for every event that may come back, so that release cannot fail.
    if (made_ == idle_.capacity()) idle_.reserve(std::max<std::size_t>(16, made_ * 2));
    ++made_;
  }
  const CUresult result = api_.event_create(event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) {
    const std::lock_guard lock(mutex_);
    --made_;
  }
  return result;
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void EventPool::release(CUevent event) noexcept {
  const std::lock_guard lock(mutex_);
  idle_.push_back(event);
}

}  // namespace cistern
