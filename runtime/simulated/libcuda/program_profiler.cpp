// "CUDA Driver API", "Profiler Control": no profiler is here to be started or stopped.

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {

CUresult profiler_start(const Call& call) {
  CUdevice device = 0;
  return call.api.ctx_get_device(&device);
}

CUresult profiler_stop(const Call& call) { return profiler_start(call); }

}  // namespace cistern::simulated
