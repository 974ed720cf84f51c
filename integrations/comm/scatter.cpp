// From one tensor's parts to many tensors.

#include <cistern/comm.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "integrations/comm/checks.h"
#include "integrations/comm/exchange.h"
#include "integrations/comm/transports.h"

namespace cistern::comm {
namespace {

using Sizes = std::vector<std::int64_t>;

// As torch.chunk cuts: no more parts than devices.
Sizes equal_sizes(std::int64_t size, std::size_t devices) {
  const auto count = static_cast<std::int64_t>(devices);
  if (size == 0) return Sizes(devices, 0);
  const std::int64_t each = (size + count - 1) / count;
  Sizes sizes;
  for (std::int64_t left = size; left > 0; left -= each) sizes.push_back(std::min(each, left));
  return sizes;
}

void check_sizes(const Sizes& sizes, std::int64_t size, std::size_t devices) {
  if (sizes.size() != devices)
    throw InvalidArgument(fmt::format("{} chunk sizes for {} devices: expected one for each", sizes.size(), devices));
  std::int64_t left = size;
  for (const std::int64_t each : sizes) {
    if (each < 0) throw InvalidArgument(fmt::format("chunk sizes {}: expected none below 0", shape_text(sizes)));
    if (each > left) left = -1;
    if (left >= 0) left -= each;
  }
  if (left != 0)
    throw InvalidArgument(
        fmt::format("chunk sizes {}: expected {} together, the size of the dimension", shape_text(sizes), size));
}

void check_streams(const Streams& streams, const std::vector<int>& devices) {
  if (streams.empty()) return;
  if (streams.size() != devices.size())
    throw InvalidArgument(
        fmt::format("{} streams for {} devices: expected one for each, or none", streams.size(), devices.size()));
  for (std::size_t i = 0; i < streams.size(); ++i)
    if (streams[i] && !streams[i]->device().is_current() && streams[i]->device() != Device(devices[i]))
      throw InvalidArgument(
          fmt::format("stream {}, {}: expected one of device {}", i, streams[i]->to_string(), devices[i]));
}

// The legacy default stream of no device in particular is that of each part's.
bool is_none(const std::optional<Stream>& stream) {
  return !stream || (stream->device().is_current() && stream->native_handle() == nullptr);
}

// Where a part is written: the stream that was given for it, or the default one, for the current one.
struct Lane {
  Stream run;
  bool is_given = false;
};

std::vector<Lane> lanes_of(const Streams& streams, const std::vector<int>& devices) {
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Device device(devices[i]);
    if (i >= streams.size() || is_none(streams[i]))
      lanes.push_back({default_stream(device), false});
    else if (streams[i]->device().is_current())  // the thread's own default stream, of any device
      lanes.push_back({Stream::external(streams[i]->native_handle(), device), true});
    else
      lanes.push_back({*streams[i], true});
  }
  return lanes;
}

// The default stream takes part in no capture, and one that waits for a stream that captures would end the capture;
// nor does the host pack for one that captures. Throws NotSupported, before anything is queued.
void check_captures(const TensorView& tensor, std::size_t dim, const Sizes& sizes, const std::vector<int>& devices,
                    const std::vector<Lane>& lanes) {
  constexpr std::string_view kByDefault = "scatter works on the default stream, without a stream for each part";
  std::int64_t start = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const TensorView part = tensor.narrow(static_cast<int>(dim), start, sizes[i]);
    start += sizes[i];
    if (part.elements() == 0) continue;
    if (!lanes[i].is_given) {
      require_no_capture(current_stream(Device(devices[i])), kByDefault);
      if (!tensor.place.is_host()) require_no_capture(stream_of(tensor), kByDefault);
    }
    if (tensor.place.is_host() && !part.is_contiguous()) require_no_capture(lanes[i].run, kHostPacks);
  }
}

void send(const TensorView& tensor, const std::vector<TensorView>& parts, std::size_t dim,
          const std::vector<Lane>& lanes, bool are_recorded) {
  Exchange exchange;
  const bool is_on_host = tensor.place.is_host();
  std::int64_t start = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Stream& run = lanes[i].run;
    const Stream current = stream_of(parts[i]);
    const TensorView part = tensor.narrow(static_cast<int>(dim), start, parts[i].shape[dim]);
    start += parts[i].shape[dim];
    if (!is_on_host) {
      const Stream reads = stream_of(tensor);
      exchange.uses(tensor, reads);
      exchange.uses(tensor, run);
      exchange.lend(reads, run);
    }
    if (!lanes[i].is_given) exchange.lend(current, run);
    if (are_recorded) exchange.uses(parts[i], run);
    // Whoever has a part of the default stream uses it on the current one.
    if (!are_recorded && !lanes[i].is_given) exchange.uses(parts[i], current);
    exchange.copy(parts[i], part, run);
  }
  exchange.finish();
}

}  // namespace

std::vector<Tensor> scatter(const TensorView& tensor, const std::vector<Device>& devices,
                            const std::optional<Sizes>& chunk_sizes, int dim, const Streams& streams) {
  check_tensor(tensor, "the tensor");
  if (devices.empty()) throw InvalidArgument("scatter to no devices: expected at least one");
  const std::size_t along = wrapped_dimension(dim, tensor.dimensions());
  std::vector<int> indices = resolved(devices);
  if (chunk_sizes) check_sizes(*chunk_sizes, tensor.shape[along], devices.size());
  check_streams(streams, indices);
  const Sizes sizes = chunk_sizes ? *chunk_sizes : equal_sizes(tensor.shape[along], devices.size());
  const std::vector<Lane> lanes = lanes_of(streams, indices);
  check_captures(tensor, along, sizes, indices, lanes);
  std::vector<Tensor> parts;
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Sizes shape = tensor.shape;
    shape[along] = sizes[i];
    parts.push_back(Tensor::empty(std::move(shape), tensor.dtype, Device(indices[i]), lanes[i].run));
    views.push_back(parts.back().view());
  }
  send(tensor, views, along, lanes, false);
  return parts;
}

std::vector<TensorView> scatter(const TensorView& tensor, const std::vector<TensorView>& out, int dim,
                                const Streams& streams) {
  check_tensor(tensor, "the tensor");
  if (out.empty()) throw InvalidArgument("scatter to no tensors: expected at least one");
  const std::size_t along = wrapped_dimension(dim, tensor.dimensions());
  std::vector<int> indices;
  Sizes sizes;
  for (std::size_t i = 0; i < out.size(); ++i) {
    check_out(out[i], tensor.dtype, false, numbered("out", i));
    check_shape_but(out[i], tensor.shape, along, numbered("out", i));
    indices.push_back(device_index(out[i]));
    sizes.push_back(out[i].shape[along]);
  }
  check_sizes(sizes, tensor.shape[along], out.size());
  check_streams(streams, indices);
  const std::vector<Lane> lanes = lanes_of(streams, indices);
  check_captures(tensor, along, sizes, indices, lanes);
  send(tensor, out, along, lanes, true);
  return out;
}

}  // namespace cistern::comm
