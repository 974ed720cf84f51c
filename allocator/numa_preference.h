#pragma once

// Prefers a device's own NUMA node for the pages that the calling thread brings in, for a scope.
//
// A preference, not a demand: where the node has no memory left, or the kernel tells nothing of nodes, pages come from
// wherever they come. The thread's own policy is restored.
// Thread safety: a scope belongs to its thread.

#include "runtime/driver_api.h"

#include <array>
#include <optional>

namespace cistern {

// The host's node nearest to the device; nothing where the driver and the kernel do not tell.
[[nodiscard]] std::optional<int> numa_node_of(const DriverApi& api, CUdevice device);

class NumaPreference {
 public:
  explicit NumaPreference(std::optional<int> node) noexcept;
  ~NumaPreference();
  NumaPreference(const NumaPreference&) = delete;
  NumaPreference& operator=(const NumaPreference&) = delete;

 private:
  static constexpr unsigned long kMostNodes = 1024;
  using Nodes = std::array<unsigned long, kMostNodes / (8 * sizeof(unsigned long))>;
  bool is_set_ = false;
  int mode_before_ = 0;
  Nodes nodes_before_{};
};

}  // namespace cistern
