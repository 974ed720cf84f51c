#pragma once

// NCCL, as far as it is used: one process, one rank a device. Loaded on first use, and never unloaded.
//
// Thread safety: any function may be called from any thread; two calls for the same devices take turns, as
// NCCL asks of the ranks of one communicator.

#include <cistern/stream.h>
#include <cistern/tensor.h>

#include <cstddef>
#include <vector>

#include "runtime/driver_api.h"

namespace cistern {

// What one device has to do with it. The devices of all are different.
struct NcclRank {
  int device = 0;
  const void* source = nullptr;  // read where the call says so
  void* destination = nullptr;
  Stream stream = {};
};

// Throw NotSupported: the library (CISTERN_LIBNCCL if it is set, else libnccl.so.2) cannot be loaded or lacks a
// function, the driver's devices run no kernels, or NCCL has no such type; LibraryError if it fails.
// From the source of the first of `ranks` to all destinations.
void nccl_broadcast(const DriverApi& api, const std::vector<NcclRank>& ranks, std::size_t bytes);
// The sum of all sources to the destination of `ranks[root]`; the others' is not used.
void nccl_reduce(const DriverApi& api, const std::vector<NcclRank>& ranks, std::size_t count, DType type,
                 std::size_t root);

}  // namespace cistern
