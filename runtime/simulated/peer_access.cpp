#include "runtime/simulated/peer_access.h"

namespace cistern::simulated {

PeerAccess::PeerAccess(int devices, const std::vector<std::pair<int, int>>& linked)
    : can_(static_cast<std::size_t>(devices)), enabled_(static_cast<std::size_t>(devices)) {
  for (const auto& [a, b] : linked) {
    can_[static_cast<std::size_t>(a)] |= std::uint64_t{1} << b;
    can_[static_cast<std::size_t>(b)] |= std::uint64_t{1} << a;
  }
}

CUresult PeerAccess::enable(int from, int to) {
  if (!can_access(from, to)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (is_enabled(from, to)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  enabled_[static_cast<std::size_t>(from)] |= std::uint64_t{1} << to;
  return CUDA_SUCCESS;
}

CUresult PeerAccess::disable(int from, int to) {
  if (!has(enabled_, from, to)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  enabled_[static_cast<std::size_t>(from)] &= ~(std::uint64_t{1} << to);
  return CUDA_SUCCESS;
}

}  // namespace cistern::simulated
