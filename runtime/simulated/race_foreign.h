#pragma once

// Which addresses are other simulated drivers' device memory: there a driver sees plain host
// memory, but on a machine the addresses mean nothing to it.
// Thread safety: any function may be called from any thread.

#include "runtime/simulated/granule.h"

#include <cstdint>
#include <vector>

namespace cistern::simulated {

// Names the windows of a driver's device memory as long as it lives.
class RaceWindows {
 public:
  // `driver`: its number.
  RaceWindows(std::uint64_t driver, const std::vector<AddressWindow>& windows);
  ~RaceWindows();
  RaceWindows(const RaceWindows&) = delete;
  RaceWindows& operator=(const RaceWindows&) = delete;

 private:
  std::uint64_t driver_;
};

// Whether the address is device memory of another driver than this one.
[[nodiscard]] bool is_of_another_driver(std::uint64_t driver, std::uint64_t address);

}  // namespace cistern::simulated
