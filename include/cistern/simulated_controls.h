#pragma once

// The controls of the simulated driver for a program that reaches it through a driver loader,
// as any CUDA program does: by our libcuda.so.1, which exports the driver's entries and one
// function more, cistern_simulated_controls. A plain C interface, for the library's own objects are not
// those of the program.
//
//   void* library = dlopen("libcuda.so.1", RTLD_NOW);
//   auto get = reinterpret_cast<const cistern::SimulatedControls* (*)()>(
//       dlsym(library, "cistern_simulated_controls"));  // null on NVIDIA's driver
//
// Each function returns a CUresult: 0, or the error of what SimulatedDriver's member of the same
// name throws (CUDA_ERROR_INVALID_VALUE for InvalidArgument). Streams are CUstream handles of the
// driver. Thread safety: any function may be called from any thread.

#include <cistern/simulated.h>

#include <cstddef>
#include <cstdint>

namespace cistern {

struct SimulatedControls {
  // The bytes of this struct as the library knows it; later members are appended.
  std::size_t size;
  // Queues `function(data)` as a kernel that takes `nanoseconds` of virtual time. It runs as often
  // as the work runs: again at each launch of a graph that captured it. A null function only takes time.
  int (*launch)(void* stream, const MemoryRange* reads, std::size_t read_count, const MemoryRange* writes,
                std::size_t write_count, std::uint64_t nanoseconds, void (*function)(void* data), void* data);
  int (*step)(int* ran);  // *ran: whether there was anything to run
  int (*run_until_idle)();
  int (*tick)();
  int (*fail_call)(const char* entry, std::uint64_t k, int error);
  int (*clear_faults)();
  // As `launch`, with what an owner needs: `function(data)` returns 0, or anything else for a kernel
  // that crashed; nothing may be thrown out of it. `release(data)` is called once, when no work and no
  // graph can run it any more, also after an error; null: nothing to release. `name`, for reports,
  // may be null.
  int (*launch_owned)(void* stream, const MemoryRange* reads, std::size_t read_count, const MemoryRange* writes,
                      std::size_t write_count, std::uint64_t nanoseconds, int (*function)(void* data), void* data,
                      void (*release)(void* data), const char* name);
  int (*host_access)(const MemoryRange* reads, std::size_t read_count, const MemoryRange* writes,
                     std::size_t write_count);
  // What was wrong with this thread's latest call that failed; "" if none has.
  const char* (*last_error)();
  // Queues a fill of `count` values of 4 bytes at `address` by Philox4x32-10 (cistern/random.h), in the
  // context that is current: of `kind` 0 words, 1 uniform, 2 normal values, from `position` of the
  // seed's sequence on. Returns the driver's CUresult.
  int (*fill_random)(void* stream, void* address, std::size_t count, int kind, std::uint64_t seed,
                     std::uint64_t position, float mean, float standard_deviation);
  // Queues a kernel, in the context that is current: elements at `source` are copied to `destination` (operation 0)
  // or added to what is there (1), in the order of `rank` extents, the last one fastest; strides are in elements.
  // `element`: 0 to 3 unsigned integers of 1, 2, 4 and 8 bytes, 4 half, 5 bfloat16, 6 float, 7 double, 8 bool.
  // Returns the driver's CUresult.
  int (*run_strided)(void* stream, int operation, int element, unsigned rank, const std::uint64_t* extents,
                     void* destination, const std::int64_t* destination_strides, const void* source,
                     const std::int64_t* source_strides);
};

}  // namespace cistern

extern "C" CISTERN_EXPORT const cistern::SimulatedControls* cistern_simulated_controls();
