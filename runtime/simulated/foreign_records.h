#pragma once

// ForeignRecords: tells a driver when records that other processes made are done.
//
// One thread for each table that something is awaited in, from the first wait on; it sleeps on
// the table's futex. A driver whose streams wait for no other process has none.
// Thread safety: watch is called with the driver's lock held, stop without it. `done` is called
// with no lock held.

#include "runtime/simulated/operation.h"
#include "runtime/simulated/shared_event.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace cistern::simulated {

class ForeignRecords {
 public:
  using Done = std::function<void(const Targets&)>;

  explicit ForeignRecords(Done done);
  ~ForeignRecords();
  ForeignRecords(const ForeignRecords&) = delete;
  ForeignRecords& operator=(const ForeignRecords&) = delete;

  // Calls `done` with `target` once record `number` of `event` is done, from another thread.
  // Throws std::bad_alloc if the host has no thread for it.
  void watch(std::shared_ptr<SharedEvent> event, std::uint64_t number, Target target);
  // Ends the threads; what is awaited still is forgotten.
  void stop() noexcept;

 private:
  class Watcher;
  const Done done_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
};

}  // namespace cistern::simulated
