#pragma once

// A driver whose refusal takes the host's memory away.

#include <cistern/simulated.h>

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <utility>

#include "runtime/driver_api.h"
#include "tests/allocator/host_memory.h"

namespace cistern {

// The simulated driver, whose first refusal takes the thread's host memory away. The driver itself
// keeps what it needs, as a real one would: its calls have host memory.
class RefusingDriver {
 public:
  explicit RefusingDriver(std::size_t capacity = std::size_t{128} << 20)
      : driver({.capacity_bytes = capacity, .backing = Backing::none}), api_(driver.api()) {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) \
  if (api_.member) api_.member = {this, &Entry<&DriverApi::member>::call};
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  }
  [[nodiscard]] const DriverApi& api() const { return api_; }

  SimulatedDriver driver;
  std::atomic<bool> armed{false};

 private:
  template <auto member>
  struct Entry;
  template <class... Args, DriverEntry<CUresult(Args...)> DriverApi::*member>
  struct Entry<member> {
    static CUresult call(void* self, Args... args) {
      auto* refusing = static_cast<RefusingDriver*>(self);
      const bool was_gone = std::exchange(testing_host::is_gone, false);
      const CUresult result = (refusing->driver.api().*member)(args...);
      testing_host::is_gone = was_gone || (result == CUDA_ERROR_OUT_OF_MEMORY && refusing->armed);
      return result;
    }
  };

  DriverApi api_;
};

}  // namespace cistern
