#pragma once

// The calls that libcuda.so.1 serves beside the table's: a function for each line of
// program_entries.def. The exported names call them (driver_exports.cpp).
//
// Thread safety: any function may be called from any thread.

#include "runtime/simulated/driver_state.h"

namespace cistern::simulated {

// The driver that is called, and what stream 0, and calls without a stream, mean: CU_STREAM_LEGACY, or
// CU_STREAM_PER_THREAD in the variants for the per-thread default stream.
struct Call {
  DriverState& state;
  const DriverApi& api;
  CUstream default_stream;
};

#define CISTERN_LIST(...) __VA_OPT__(, ) __VA_ARGS__
#define CISTERN_PROGRAM_ENTRY(member, symbol, version, parameters) \
  CUresult member(const Call& call CISTERN_LIST parameters);
#define CISTERN_ABSENT_ENTRY(member, symbol, version, parameters)
#include "runtime/simulated/libcuda/program_entries.def"
#undef CISTERN_PROGRAM_ENTRY
#undef CISTERN_ABSENT_ENTRY
#undef CISTERN_LIST

// cuMemcpy on the call's default stream.
CUresult memcpy_on_default_stream(const Call& call, CUdeviceptr destination, CUdeviceptr source, std::size_t bytes);

}  // namespace cistern::simulated
