#pragma once

// DriverApi: the one table through which all of cistern reaches the driver.
//
// Filled twice: from libcuda (cuda_driver.h) and by the simulated driver
// (simulated/). Conventions are the driver's own: each entry returns a CUresult, works in
// the calling thread's current context where the driver's does, and sizes are bytes.
// An entry carries the object that serves it, so several drivers can live in one process.
// Thread safety: every entry may be called from any thread; a table never changes.

#include <cistern/processes.h>
#include <cuda.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/strided_work.h"

namespace cistern {

struct SimulatedControls;

template <class Signature>
class DriverEntry;

template <class... Args>
class DriverEntry<CUresult(Args...)> {
 public:
  using Function = CUresult (*)(void* self, Args... args);

  constexpr DriverEntry() noexcept = default;
  constexpr DriverEntry(void* self, Function function) noexcept : self_(self), function_(function) {}

  CUresult operator()(Args... args) const { return function_(self_, args...); }
  // False where the driver lacks the entry.
  explicit operator bool() const noexcept { return function_ != nullptr; }
  // The object that serves it.
  [[nodiscard]] constexpr void* self() const noexcept { return self_; }

 private:
  void* self_ = nullptr;
  Function function_ = nullptr;
};

// A call of one's own, not the driver's: tells about a block; null when nobody listens.
// `stream` is the block's stream at that moment, unless the note says otherwise. `pool` tells
// private pools apart and is null for what anybody's request may get; it is never followed.
struct BlockNote {
  void* self = nullptr;
  void (*function)(void* self, CUdeviceptr address, std::size_t bytes, CUstream stream, const void* pool) = nullptr;
  explicit operator bool() const noexcept { return function != nullptr; }
  void operator()(CUdeviceptr address, std::size_t bytes, CUstream stream, const void* pool = nullptr) const {
    if (function != nullptr) function(self, address, bytes, stream, pool);
  }
};

// Another call of one's own: the processes that use a device, where the driver's filling knows them.
struct ProcessList {
  void* self = nullptr;
  std::vector<GpuProcess> (*function)(void* self, CUdevice device) = nullptr;
  explicit operator bool() const noexcept { return function != nullptr; }
  std::vector<GpuProcess> operator()(CUdevice device) const { return function(self, device); }
};

// A fill with random values of a Philox4x32-10 sequence (philox.h): 4 bytes each, from a position on.
enum class RandomKind : int { words, uniform, normal };
struct RandomFill {
  RandomKind kind = RandomKind::words;
  CUdeviceptr destination = 0;
  std::size_t count = 0;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // even, for normal values
  float mean = 0;              // of normal values, as is the next
  float standard_deviation = 1;
};

// A third one: queues such a fill, where the driver's filling knows how to; cuRAND does elsewhere. As
// cuMemsetD32Async, which it stands beside, it works on the current context.
struct RandomSource {
  void* self = nullptr;
  CUresult (*function)(void* self, const RandomFill& fill, CUstream stream) = nullptr;
  explicit operator bool() const noexcept { return function != nullptr; }
  CUresult operator()(const RandomFill& fill, CUstream stream) const { return function(self, fill, stream); }
};

// A fourth one: queues strided work as a kernel, where the driver's filling knows how to; elsewhere it is one of
// ours (strided_kernels.h). It works on the current context, too.
struct StridedSource {
  void* self = nullptr;
  CUresult (*function)(void* self, const StridedWork& work, CUstream stream) = nullptr;
  explicit operator bool() const noexcept { return function != nullptr; }
  CUresult operator()(const StridedWork& work, CUstream stream) const { return function(self, work, stream); }
};

// A fifth one: the host's time in nanoseconds, which never goes back; null: the steady clock's. For what happens
// after a while, so that a test need not wait.
struct HostClock {
  void* self = nullptr;
  std::int64_t (*function)(void* self) = nullptr;
  std::int64_t operator()() const {
    if (function != nullptr) return function(self);
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

// What loads and launches kernels: entries of the driver that a simulated one, which runs none, does not have.
struct KernelEntries {
  DriverEntry<CUresult(CUlibrary* library, const void* code, CUjit_option* jit_options, void** jit_values,
                       unsigned jit_count, CUlibraryOption* options, void** values, unsigned count)>
      library_load_data;
  DriverEntry<CUresult(CUkernel* kernel, CUlibrary library, const char* name)> library_get_kernel;
  DriverEntry<CUresult(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                       void** extra)>
      launch_kernel;
};

struct DriverApi {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) DriverEntry<CUresult parameters> member;
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY

  BlockNote note_allocate;  // of device memory; of host memory: see host_block_note.h
  BlockNote note_use;       // work of another stream than the block's uses it: `stream`; no pool
  BlockNote note_free;      // 0 bytes: somebody frees what is no live block; no pool

  ProcessList list_processes;
  RandomSource fill_random;
  StridedSource strided;
  HostClock host_clock;
  KernelEntries kernels;
  // Whether the Toolkit's libraries, which launch kernels of their own, work on its devices.
  bool has_cuda_libraries = false;

  // Of a simulated driver in a library of its own (cistern/simulated_controls.h); null elsewhere.
  const SimulatedControls* controls = nullptr;
};

// Names each entry by number, for counters, faults and costs.
enum class DriverEntryId : std::size_t {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) member,
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
  count
};
inline constexpr std::size_t kDriverEntryCount = static_cast<std::size_t>(DriverEntryId::count);

// The driver's names of the entries, e.g. "cuMemAlloc", in the order of DriverEntryId.
inline constexpr std::array<const char*, kDriverEntryCount> kDriverEntryNames = {
#define CISTERN_DRIVER_ENTRY(member, symbol, version, need, parameters) symbol,
#include "runtime/driver_entries.def"
#undef CISTERN_DRIVER_ENTRY
};

}  // namespace cistern
