#include "allocator/pool_filter.h"

#include <cistern/error.h>
#include <fmt/format.h>

namespace cistern {

PoolFilter PoolFilter::stream(const Stream& stream) {
  PoolFilter filter;
  filter.kind_ = Kind::stream;
  filter.stream_ = stream;
  return filter;
}

PoolFilter PoolFilter::stream(StreamHandle stream) {
  PoolFilter filter;
  filter.kind_ = Kind::handle;
  filter.handle_ = stream;
  return filter;
}

PoolFilter PoolFilter::capture(std::uint64_t capture_id) {
  PoolFilter filter;
  filter.kind_ = Kind::capture;
  filter.capture_id_ = capture_id;
  return filter;
}

PoolFilter PoolFilter::this_thread() {
  PoolFilter filter;
  filter.kind_ = Kind::thread;
  return filter;
}

PoolFilter PoolFilter::every_stream() { return {}; }

RecordingFilter PoolFilterAccess::resolve(const PoolFilter& filter, DeviceHeaps& heaps, int device) {
  using Kind = RecordingFilter::Kind;
  switch (filter.kind_) {
    case PoolFilter::Kind::capture:
      return {Kind::capture, 0, filter.capture_id_};
    case PoolFilter::Kind::thread:
      return {Kind::thread, 0, 0};
    case PoolFilter::Kind::every:
      return {Kind::every, 0, 0};
    case PoolFilter::Kind::stream:
    case PoolFilter::Kind::handle:
      break;
  }
  const StreamUse use =
      filter.kind_ == PoolFilter::Kind::stream ? heaps.use_of(filter.stream_) : heaps.use_of(filter.handle_, device);
  if (use.device != device)
    throw InvalidArgument(
        fmt::format("a pool of device {}: the stream of its filter is of device {}, expected one of "
                    "the same device",
                    device, use.device));
  return {Kind::stream, use.stream.id, 0};
}

}  // namespace cistern
