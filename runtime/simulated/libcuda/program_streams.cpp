// "CUDA Driver API", "Stream Management".

#include "runtime/simulated/libcuda/program_calls.h"

namespace cistern::simulated {

CUresult stream_create(const Call& call, CUstream* stream, unsigned flags) {
  return call.api.stream_create_with_priority(stream, flags, 0);
}

}  // namespace cistern::simulated
