#include "runtime/stream_ends.h"

#include <atomic>

namespace cistern {
namespace {

std::atomic<StreamEndObserver> observer{nullptr};

}  // namespace

void observe_stream_ends(StreamEndObserver function) noexcept { observer = function; }

void announce_stream_end(const DriverApi& api, CUstream stream, int device) noexcept {
  const StreamEndObserver function = observer;
  StreamIdentity identity;
  if (function != nullptr && identify_stream(api, stream, &identity) == CUDA_SUCCESS) function(identity, device);
}

}  // namespace cistern
