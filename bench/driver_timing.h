#pragma once

// Times the driver calls that the design rests on, with the device idle and busy.
//
// Works on any table; on the simulated driver the times are the host's, and say nothing of
// a device. Throws DriverError if the driver fails.

#include "runtime/context.h"
#include "runtime/driver_api.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cistern {

struct CallTime {
  std::string entry;              // the driver's name, e.g. "cuMemMap"
  std::string of;                 // on what: "2 MiB", "64 handles of 2 MiB" …
  double idle_ns = 0;             // median with nothing queued
  std::optional<double> busy_ns;  // median with work running on the device, where that is asked
  bool is_cost = false;           // the one figure of this entry that the cost model uses
};

// Each call `repetitions` times, medians. Work that keeps the device busy is a chain of
// fills of its memory on a stream of its own.
[[nodiscard]] std::vector<CallTime> time_driver_calls(Contexts& contexts, int device, int repetitions);

}  // namespace cistern
