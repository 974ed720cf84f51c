#pragma once

// Events without timing for one device, made when needed and kept for reuse.
//
// Thread safety: any member may be called from any thread.

#include "runtime/driver_api.h"

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
  // Takes an event back. It may still be pending: its next record replaces that.
  void release(CUevent event) noexcept;

 private:
  const DriverApi& api_;
  std::mutex mutex_;
  std::vector<CUevent> idle_;
};

}  // namespace cistern
