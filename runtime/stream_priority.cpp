// Priorities: the frameworks' scales, and the ranges of a device.

#include <cistern/error.h>
#include <cistern/stream.h>
#include <fmt/format.h>

#include <algorithm>

#include "runtime/device_scope.h"
#include "runtime/process_driver.h"
#include "runtime/stream_pool.h"

namespace cistern {

Priority Priority::pytorch(int priority) {
  if (priority != 0 && priority != -1)
    throw InvalidArgument(fmt::format("priority {} in PyTorch's scale: expected -1 (high) or 0 (low)", priority));
  return {priority};
}

Priority Priority::cupy(std::optional<int> priority) noexcept { return {priority.value_or(0)}; }

Priority Priority::paddle(std::optional<int> priority) {
  switch (priority.value_or(2)) {
    case 1:
      return {-1};
    case 2:
      return {0};
    default:
      throw InvalidArgument(fmt::format("priority {} in Paddle's scale: expected 1 (high) or 2 (normal)", *priority));
  }
}

Priority Priority::mindspore(int priority) noexcept { return {priority}; }

PriorityRange stream_priority_range(Device device) {
  const int index = resolve_device(device);
  const DeviceScope scope(nullptr, index);
  return driver_priority_range(scope.api(), index);
}

PriorityRange Stream::priority_range(Device device) {
  return {0, std::max(StreamPool::kGreatestPriority, stream_priority_range(device).greatest)};
}

}  // namespace cistern
