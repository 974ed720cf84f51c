#pragma once

// Events without timing for one device, made when needed and kept for reuse.
//
// Thread safety: any member may be called from any thread.

#include "runtime/driver_api.h"

#include <cstddef>
#include <mutex>
#include <vector>

namespace cistern {

class EventPool {
 public:
  explicit EventPool(const DriverApi& api) : api_(api) {}
  // Destroys the events that were given back; those that are out are their holders'.
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event that nobody else uses. The device's context must be current.
  [[nodiscard]] CUresult acquire(CUevent* event);
  // Takes back an event that acquire gave. It may still be pending: its next record replaces that.
  void release(CUevent event) noexcept;

 private:
  const DriverApi& api_;
  std::mutex mutex_;
  std::vector<CUevent> idle_;  // its capacity is at least made_
  std::size_t made_ = 0;       // idle, and out
};

}  // namespace cistern
