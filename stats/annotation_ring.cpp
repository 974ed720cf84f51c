#include "stats/annotation_ring.h"

#include <algorithm>
#include <utility>

namespace cistern {

void AnnotationRing::add(std::string_view name, bool is_start, int device) {
  Annotation added{std::make_shared<const std::string>(name), is_start, device, 0};
  Annotation oldest;  // its name ends without the lock
  const std::lock_guard lock(mutex_);
  if (capacity_ == 0) return;
  added.ticks = clock_.now();
  annotations_.push_back(std::move(added));
  if (annotations_.size() <= capacity_) return;
  oldest = std::move(annotations_.front());
  annotations_.pop_front();
}

void AnnotationRing::set_capacity(std::size_t capacity, bool clear) noexcept {
  const std::lock_guard lock(mutex_);
  if (clear) annotations_.clear();
  capacity_ = capacity == 0 ? 0 : std::max(capacity, annotations_.size());
}

std::vector<ExternalAnnotation> AnnotationRing::all() const {
  const TickClock::Conversion time(clock_);
  std::vector<Annotation> copy;
  {
    std::unique_lock lock(mutex_);
    while (copy.capacity() < annotations_.size()) {
      const std::size_t count = annotations_.size();
      lock.unlock();
      copy.reserve(count + count / 16 + 16);
      lock.lock();
    }
    copy.assign(annotations_.begin(), annotations_.end());
  }
  std::vector<ExternalAnnotation> all;
  all.reserve(copy.size());
  for (const Annotation& annotation : copy)
    all.push_back({*annotation.name, annotation.is_start, annotation.device, time.unix_us(annotation.ticks)});
  return all;
}

}  // namespace cistern
