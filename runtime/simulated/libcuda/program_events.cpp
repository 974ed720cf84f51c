// "CUDA Driver API", "Event Management".

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {

// The second form of the call differs from the first in what it measures on hardware alone.
CUresult event_elapsed_time_v2(const Call& call, float* milliseconds, CUevent start, CUevent end) {
  return call.api.event_elapsed_time(milliseconds, start, end);
}

}  // namespace cistern::simulated
