#pragma once

// Streams: the streams of a simulated driver, and which of them a handle means.
//
// Handles 0 and 1 are the legacy default stream of the current device, 2 is the calling
// thread's own default stream there; all others were created. Handles of destroyed streams
// are used again at once, their numbers (cuStreamGetId) never.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/driver_api.h"
#include "runtime/simulated/executor.h"
#include "runtime/simulated/handle_table.h"
#include "runtime/simulated/operation.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cistern::simulated {

// Priorities of a device's streams, as the driver has them: lower is higher.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

class Streams {
 public:
  Streams(Executor& executor, int devices, std::uint16_t driver);

  // Clamps `priority` to the device's range, as the driver does.
  [[nodiscard]] CUstream create(int device, unsigned flags, int priority);
  // The stream that `handle` means where `current_device` is current (-1: none is);
  // nullptr if there is none.
  [[nodiscard]] StreamQueue* find(CUstream handle, int current_device);
  // Whether `handle` means another stream on each device.
  [[nodiscard]] static bool is_default(CUstream handle) noexcept;
  // Its queued work still runs. Requires: the stream was created, not a default one.
  void destroy(StreamQueue& stream);
  // The default streams of a thread, by its number.
  [[nodiscard]] std::vector<StreamQueue*> of_thread(std::uint64_t thread);
  // Destroys the default streams of a thread that ended, by its number.
  void retire_thread(std::uint64_t thread);

 private:
  [[nodiscard]] std::unique_ptr<StreamQueue> make(int device, unsigned flags, int priority, CUstream handle);
  StreamQueue& of_this_thread(int device);
  void drop_retired();

  Executor& executor_;
  std::vector<std::unique_ptr<StreamQueue>> legacy_;                                  // by device
  std::map<std::pair<std::uint64_t, int>, std::unique_ptr<StreamQueue>> per_thread_;  // by thread and device
  HandleTable<std::unique_ptr<StreamQueue>> created_;
  std::vector<std::unique_ptr<StreamQueue>> retired_;  // destroyed or of ended threads, perhaps with work left
  std::uint64_t next_id_ = 1;
};

}  // namespace cistern::simulated
