#pragma once

// PeerAccess: which devices can reach each other's memory, and which have been allowed to.
//
// Access is one way: enabling it for one device says nothing about the other direction.
// Not thread-safe: the driver holds its lock around every call.

#include "runtime/driver_api.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace cistern::simulated {

class PeerAccess {
 public:
  // `linked`: pairs of devices that can reach each other. At most 64 devices.
  PeerAccess(int devices, const std::vector<std::pair<int, int>>& linked);

  [[nodiscard]] bool can_access(int from, int to) const { return has(can_, from, to); }
  // Whether kernels of `from` may touch what `to` allocates with cuMemAlloc: always their own.
  [[nodiscard]] bool is_enabled(int from, int to) const { return from == to || has(enabled_, from, to); }
  // Both answer with the driver's own result. Requires: from != to.
  CUresult enable(int from, int to);
  CUresult disable(int from, int to);

 private:
  using Rows = std::vector<std::uint64_t>;  // by `from`: a bit for each `to`
  [[nodiscard]] static bool has(const Rows& rows, int from, int to) {
    return (rows[static_cast<std::size_t>(from)] >> to & 1) != 0;
  }

  Rows can_;
  Rows enabled_;
};

}  // namespace cistern::simulated
