#pragma once

// The shared streams behind Stream::from_pool.
//
// 32 for each device and priority, all made at the first request for the two, handed out in
// turn and never destroyed. Thread safety: any member may be called from any thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/context.h"
#include "runtime/stream_access.h"

namespace cistern {

// The driver's range for a device, whose context must be current. Throws DriverError.
[[nodiscard]] PriorityRange driver_priority_range(const DriverApi& api, int device);

// A new stream of the driver, with its id; destroyed again if the id cannot be had. The
// device's context must be current. Throws DriverError.
[[nodiscard]] StreamIdentity create_stream(const DriverApi& api, int device, unsigned flags, int priority);

class StreamPool {
 public:
  // The highest of its priorities; the lowest is 0.
  static constexpr int kGreatestPriority = -3;

  // `contexts` must live for ever, as the streams do.
  explicit StreamPool(Contexts& contexts);
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  // The next stream; `priority` is clamped to 0 .. -3 and to what the device has.
  // Throws InvalidArgument if there is no such device; DriverError, and then has made nothing.
  [[nodiscard]] StreamIdentity next(int device, int priority);

 private:
  static constexpr std::size_t kStreams = 32;
  struct Ring {
    std::array<StreamIdentity, kStreams> streams;
    std::size_t turn = 0;
  };
  struct DevicePool {
    std::array<std::unique_ptr<Ring>, 1 - kGreatestPriority> rings;  // by priority, negated
    bool has_range = false;
    PriorityRange range;
  };

  [[nodiscard]] std::unique_ptr<Ring> make_ring(int device, int priority) const;

  Contexts& contexts_;
  std::mutex mutex_;
  std::vector<DevicePool> devices_;
};

// The pool of the process's driver.
[[nodiscard]] StreamPool& process_stream_pool();

}  // namespace cistern
