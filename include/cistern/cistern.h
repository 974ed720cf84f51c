#pragma once

// All of cistern for C++: see each header for its contract.

#include <cistern/allocator.h>
#include <cistern/blas.h>
#include <cistern/buffer.h>
#include <cistern/comm.h>
#include <cistern/device.h>
#include <cistern/dlpack.h>
#include <cistern/error.h>
#include <cistern/event.h>
#include <cistern/fixed_text.h>
#include <cistern/graph.h>
#include <cistern/history.h>
#include <cistern/host_allocator.h>
#include <cistern/host_memory.h>
#include <cistern/ipc.h>
#include <cistern/managed_memory.h>
#include <cistern/mem_pool.h>
#include <cistern/memory.h>
#include <cistern/nvtx.h>
#include <cistern/options.h>
#include <cistern/processes.h>
#include <cistern/pytorch_names.h>
#include <cistern/race_report.h>
#include <cistern/random.h>
#include <cistern/scope.h>
#include <cistern/simulated.h>
#include <cistern/simulated_controls.h>
#include <cistern/snapshot.h>
#include <cistern/stats.h>
#include <cistern/stream.h>
#include <cistern/stream_allocator.h>
#include <cistern/tensor.h>
#include <cistern/unique_ptr.h>
