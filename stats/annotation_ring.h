#pragma once

// AnnotationRing: the newest ranges that users marked, of all devices.
//
// Thread safety: any member may be called from any thread.

#include <cistern/snapshot.h>

#include "stats/tick_clock.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace cistern {

class AnnotationRing {
 public:
  explicit AnnotationRing(std::size_t capacity) : capacity_(capacity) {}

  // Throws std::bad_alloc, unchanged.
  void add(std::string_view name, bool is_start, int device);
  // 0: nothing is kept from now on. What is held beyond the capacity stays until it is overwritten,
  // unless it is cleared.
  void set_capacity(std::size_t capacity, bool clear) noexcept;
  // Others wait for no longer than it takes to copy the entries.
  [[nodiscard]] std::vector<ExternalAnnotation> all() const;

  // For fork, and for those who look at everything at one moment: nothing but for_each may be called
  // between the two.
  void lock_for_fork() const { mutex_.lock(); }
  void unlock_after_fork() const { mutex_.unlock(); }
  // visit(name, whether it is a start, device, microseconds since the epoch), oldest first. Takes no
  // host memory.
  template <class Visit>
  void for_each(Visit&& visit) const {
    const TickClock::Conversion time(clock_);
    for (const Annotation& annotation : annotations_)
      visit(std::string_view(*annotation.name), annotation.is_start, annotation.device, time.unix_us(annotation.ticks));
  }

 private:
  struct Annotation {
    std::shared_ptr<const std::string> name;  // never changes: those who look share it
    bool is_start = true;
    int device = 0;
    std::uint64_t ticks = 0;
  };
  mutable std::mutex mutex_;
  std::deque<Annotation> annotations_;  // oldest first
  std::size_t capacity_;
  TickClock clock_;
};

}  // namespace cistern
