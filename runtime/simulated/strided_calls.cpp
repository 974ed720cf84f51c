// Strided work, as a kernel of the stream.

#include <memory>
#include <utility>

#include "runtime/simulated/driver_state.h"
#include "runtime/simulated/inside_operation.h"
#include "runtime/strided_values.h"

namespace cistern::simulated {
namespace {

// Beyond this many ranges the race detector is told of all that lies between the first and the last.
constexpr std::size_t kMostRanges = 4096;

void add(std::vector<Touch>& touches, const std::vector<ByteRange>& ranges, bool write, int device) {
  for (const ByteRange& range : ranges)
    touches.push_back({range.first, range.end - range.first, write, device, Toucher::kernel});
}

std::vector<Touch> touches_of(const StridedWork& work, int device) {
  std::vector<Touch> touches;
  add(touches, ranges_of(work.destination, work, work.destination_strides, kMostRanges), true, device);
  add(touches, ranges_of(work.source, work, work.source_strides, kMostRanges), false, device);
  return touches;
}

}  // namespace

// As fill_random: no entry of the driver, no call that is counted, no fault.
CUresult DriverState::run_strided(const StridedWork& strided, CUstream handle) {
  if (gone.load(std::memory_order_acquire)) return CUDA_ERROR_DEINITIALIZED;
  if (is_inside_operation(this)) return CUDA_ERROR_NOT_PERMITTED;
  const std::lock_guard lock(mutex);
  StreamQueue* stream = nullptr;
  if (const CUresult refused = find_stream(handle, &stream); refused != CUDA_SUCCESS) return refused;
  const std::uint32_t size = size_of(strided.element);
  if (strided.destination % size != 0 || strided.source % size != 0) return CUDA_ERROR_INVALID_VALUE;
  if (strided.count == 0) return CUDA_SUCCESS;
  std::vector<Touch> touches = touches_of(strided, stream->device);
  Work work{.label = {OperationKind::kernel, strided.operation == StridedOperation::add ? "add" : "copy"},
            .duration = duration_in_device(strided.count * size)};
  for (const Touch& touch : touches) {
    if (may_touch(touch, Moment::call)) continue;
    tell_refused(*stream, work.label, {{touch.address, touch.bytes, touch.write}});
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (options.backing != Backing::none)
    work.function = [shared = std::make_shared<const StridedWork>(strided)](CUresult) {
      cistern::run_strided(*shared);
      return CUDA_SUCCESS;
    };
  add_touches(work, std::move(touches));
  return submit(*stream, std::move(work));
}

}  // namespace cistern::simulated
