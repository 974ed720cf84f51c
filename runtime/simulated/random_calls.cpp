// Fills with random values: what cuRAND's kernels do on a device, as kernels of ours.

#include "runtime/random_values.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/inside_operation.h"

namespace cistern::simulated {
namespace {

constexpr std::size_t kValueBytes = 4;

const char* name_of(RandomKind kind) {
  switch (kind) {
    case RandomKind::words:
      return "random words";
    case RandomKind::uniform:
      return "random uniform";
    case RandomKind::normal:
      return "random normal";
  }
  return "random";
}

}  // namespace

// It is no entry of the driver: no call is counted, and no fault is set up for it.
CUresult DriverState::fill_random(const RandomFill& fill, CUstream handle) {
  if (gone.load(std::memory_order_acquire)) return CUDA_ERROR_DEINITIALIZED;
  if (is_inside_operation(this)) return CUDA_ERROR_NOT_PERMITTED;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  if (fill.destination % kValueBytes != 0 || fill.count > ~std::size_t{0} / kValueBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (fill.count == 0) return CUDA_SUCCESS;
  const Touch writes{fill.destination, fill.count * kValueBytes, true, stream->device, Toucher::kernel};
  Work work{.label = {OperationKind::kernel, name_of(fill.kind)}, .duration = duration_in_device(writes.bytes)};
  if (!may_touch(writes, Moment::call)) {
    tell_refused(*stream, work.label, {{writes.address, writes.bytes, true}});
    return CUDA_ERROR_INVALID_VALUE;
  }
  work.accesses = {{writes.address, writes.bytes, true}};
  work.is_valid = [this, writes] { return may_touch(writes, Moment::turn); };
  work.function = [this, fill, writes](CUresult) {
    return write_in_parts(writes, [&fill](std::size_t offset, std::size_t bytes) {
      write_random_values(fill, offset / kValueBytes, bytes / kValueBytes,
                          reinterpret_cast<void*>(fill.destination + offset));
    });
  };
  return submit(*stream, std::move(work));
}

}  // namespace cistern::simulated
