#pragma once

// The primary contexts of one driver's devices: those that the CUDA runtime API uses in
// the same process, so that our streams and events are its streams and events.

#include "runtime/driver_api.h"
#include "runtime/known_streams.h"

#include <memory>
#include <mutex>
#include <vector>

namespace cistern {

// Retains each device's primary context when it is first asked for, and releases what it
// retained when it ends (never throws; a driver that is gone is no error then).
// Thread safety: any member may be called from any thread.
class Contexts {
 public:
  // Calls cuInit and counts the devices. Throws NotSupported if there is none, DriverError.
  explicit Contexts(const DriverApi& api);
  ~Contexts();
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }
  [[nodiscard]] int device_count() const noexcept { return static_cast<int>(devices_.size()); }
  // Throws InvalidArgument naming `device` and the count if there is no such device.
  void require(int device) const;
  [[nodiscard]] CUdevice driver_device(int device) const;
  [[nodiscard]] CUcontext primary(int device);
  // The device that a context belongs to. Throws DriverError.
  [[nodiscard]] int device_of(CUcontext context) const;
  [[nodiscard]] KnownStreams& known_streams() noexcept { return known_streams_; }

 private:
  const DriverApi& api_;
  struct Entry {
    CUdevice device = 0;
    CUcontext context = nullptr;
  };
  std::mutex mutex_;
  std::vector<Entry> devices_;
  KnownStreams known_streams_;
};

// Makes a context current on this thread for a scope and restores the one before it.
// Makes no call when it is current already but the question.
class ContextGuard {
 public:
  // Throws DriverError if the driver refuses.
  ContextGuard(const DriverApi& api, CUcontext context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const DriverApi& api_;
  CUcontext previous_ = nullptr;
  bool changed_ = false;
};

}  // namespace cistern
