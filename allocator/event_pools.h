#pragma once

// The event pools of one driver's devices. Thread safety: as EventPool's.

#include "runtime/event_pool.h"

#include <memory>
#include <vector>

namespace cistern {

class EventPools {
 public:
  EventPools(const DriverApi& api, int devices) {
    for (int i = 0; i < devices; ++i) pools_.push_back(std::make_unique<EventPool>(api));
  }
  [[nodiscard]] EventPool& of(int device) { return *pools_[static_cast<std::size_t>(device)]; }

 private:
  std::vector<std::unique_ptr<EventPool>> pools_;
};

}  // namespace cistern
