#include "stats/annotation_ring.h"

#include <algorithm>

namespace cistern {

void AnnotationRing::add(std::string_view name, bool is_start, int device) {
  const std::lock_guard lock(mutex_);
  if (capacity_ == 0) return;
  annotations_.push_back({std::string(name), is_start, device, clock_.now()});
  if (annotations_.size() > capacity_) annotations_.pop_front();
}

void AnnotationRing::set_capacity(std::size_t capacity, bool clear) noexcept {
  const std::lock_guard lock(mutex_);
  if (clear) annotations_.clear();
  capacity_ = capacity == 0 ? 0 : std::max(capacity, annotations_.size());
}

std::vector<ExternalAnnotation> AnnotationRing::all() const {
  const TickClock::Conversion time(clock_);
  const std::lock_guard lock(mutex_);
  std::vector<ExternalAnnotation> all;
  all.reserve(annotations_.size());
  for (const Annotation& annotation : annotations_)
    all.push_back({annotation.name, annotation.is_start, annotation.device, time.unix_us(annotation.ticks)});
  return all;
}

}  // namespace cistern
