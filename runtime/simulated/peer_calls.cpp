// Entries about peer access. "CUDA Driver API", "Peer Context Memory Access".

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

CUresult DriverState::device_can_access_peer(int* can_access, CUdevice from, CUdevice to) {
  if (can_access == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(from) || !is_device(to)) return CUDA_ERROR_INVALID_DEVICE;
  *can_access = peers.can_access(from, to) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult DriverState::ctx_enable_peer_access(CUcontext peer, unsigned flags) {
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const int other = device_of(peer);
  if (other < 0 || other == index) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return peers.enable(index, other);
}

CUresult DriverState::ctx_disable_peer_access(CUcontext peer) {
  const std::lock_guard lock(mutex);
  int index = 0;
  if (const CUresult refused = find_current(&index); refused != CUDA_SUCCESS) return refused;
  const int other = device_of(peer);
  if (other < 0) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = peers.disable(index, other);
  if (result == CUDA_SUCCESS && races) {
    // Memory of a pool has its own leave, and copies need none.
    const AddressWindow& window = device(other).memory.window();
    races->leave_taken_back(index, window.begin, window.end, [this, index](std::uint64_t address) {
      const Touch touch{address, 1, false, index};
      return !pools.may_touch(touch, Moment::call) && !pools.may_touch(touch, Moment::turn);
    });
  }
  return result;
}

}  // namespace cistern::simulated
