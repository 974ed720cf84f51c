#pragma once

// What a replay runs on: a driver table that counts its calls, and the driver's own view of
// how much memory is held through it.
//
// Not thread-safe: a replay uses its device from one thread.

#include <cistern/simulated.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/driver_api.h"

namespace cistern {

// Driver calls since a device was made.
struct DriverFigures {
  std::array<std::uint64_t, kDriverEntryCount> calls{};
  std::uint64_t host_synchronizations = 0;
  double modelled_ms = 0;

  [[nodiscard]] std::uint64_t of(DriverEntryId entry) const { return calls[static_cast<std::size_t>(entry)]; }
  // Calls that get, return, map or reserve device memory.
  [[nodiscard]] std::uint64_t memory_management_calls() const;
};
[[nodiscard]] DriverFigures operator-(const DriverFigures& after, const DriverFigures& before);

class ReplayDevice {
 public:
  virtual ~ReplayDevice() = default;
  ReplayDevice(const ReplayDevice&) = delete;
  ReplayDevice& operator=(const ReplayDevice&) = delete;

  // The table; it lives as long as the device.
  [[nodiscard]] virtual const DriverApi& api() const = 0;
  // The device's name; "simulated" for the simulated driver's.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool is_simulated() const = 0;
  [[nodiscard]] virtual std::uint64_t capacity_bytes() const = 0;
  [[nodiscard]] virtual DriverFigures figures() const = 0;
  // Begins the count of the peak: called when the allocator and its streams are made, so that
  // what the driver took for them is not counted. The device's context must be current.
  virtual void start_memory_watch() = 0;
  // The most bytes of device memory that the driver counted as held beyond those at the start.
  [[nodiscard]] virtual std::uint64_t peak_reserved_bytes() const = 0;
  // Whether events wait for ticks; `tick` ends one.
  [[nodiscard]] virtual bool has_event_lag() const = 0;
  virtual void tick() = 0;

 protected:
  ReplayDevice() = default;
};

// A simulated device of its own: device 0 of a new driver. It keeps accounts only, whatever
// `options` say of the backing: a replay touches no bytes.
[[nodiscard]] std::unique_ptr<ReplayDevice> make_simulated_replay_device(const SimulatedOptions& options);
// Device 0 of the process's driver. Throws NotSupported or DriverError where there is none.
[[nodiscard]] std::unique_ptr<ReplayDevice> make_process_replay_device();

// What CISTERN_DEVICE chooses for a replay.
struct DeviceChoice {
  bool is_simulated = true;
  SimulatedOptions simulated;  // its settings, when it is simulated
};
// Asks requested_device, and loads the process's driver where the answer depends on it.
// Throws InvalidArgument naming a bad setting, NotSupported where there is no such device.
[[nodiscard]] DeviceChoice choose_device();

}  // namespace cistern
