#include <cistern/c_api.h>
#include <cistern/comm.h>
#include <cistern/error.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integrations/c_api/status.h"
#include "integrations/c_api/tensor.h"

using cistern::Device;
using cistern::InvalidArgument;
using cistern::Tensor;
using cistern::TensorView;
using cistern::c_api::give;
using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::require_count;
using cistern::c_api::require_given;
using cistern::c_api::view_of;
using cistern::c_api::views_of;
using cistern::comm::Transport;

static_assert(CISTERN_COALESCING_BYTES == cistern::comm::kCoalescingBytes);

namespace {

Transport transport_of(int transport) {
  if (transport != CISTERN_PEER_COPIES && transport != CISTERN_NCCL)
    throw InvalidArgument("transport " + std::to_string(transport) + ": expected CISTERN_PEER_COPIES or CISTERN_NCCL");
  return transport == CISTERN_NCCL ? Transport::nccl : Transport::peer_copies;
}

std::vector<Device> devices_of(const int* devices, std::size_t count) {
  require_count(count, "devices");
  if (count != 0) require_given(devices, "devices");
  return std::vector<Device>(devices, devices + count);
}

void require_one(const int* devices, const cistern_tensor_view* out) {
  if ((devices == nullptr) == (out == nullptr))
    throw InvalidArgument(devices == nullptr ? "neither devices nor out: expected exactly one"
                                             : "both devices and out: expected exactly one");
}

// A handle names a stream of the device of its part.
cistern::comm::Streams streams_of(const cistern_stream* streams, const std::vector<Device>& devices) {
  if (streams == nullptr) return {};
  cistern::comm::Streams all;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    all.emplace_back();
    if (streams[i] != nullptr) all.back() = cistern::c_api::stream_of(devices[i].index(), streams[i]);
  }
  return all;
}

}  // namespace

cistern_status cistern_comm_broadcast(const cistern_tensor_view* tensor, const int* devices,
                                      const cistern_tensor_view* out, size_t count, int transport,
                                      cistern_tensor** copies) {
  return guarded([&] {
    require_one(devices, out);
    if (out != nullptr) {
      cistern::comm::broadcast(view_of(tensor), views_of(out, count), transport_of(transport));
      return;
    }
    require(copies, "copies");
    give(cistern::comm::broadcast(view_of(tensor), devices_of(devices, count), transport_of(transport)), copies);
  });
}

cistern_status cistern_comm_broadcast_coalesced(const cistern_tensor_view* tensors, size_t count, const int* devices,
                                                size_t device_count, size_t buffer_bytes, int transport,
                                                cistern_tensor** copies) {
  return guarded([&] {
    require(copies, "copies");
    std::vector<Tensor> all;
    for (std::vector<Tensor>& of_device : cistern::comm::broadcast_coalesced(
             views_of(tensors, count), devices_of(devices, device_count), buffer_bytes, transport_of(transport)))
      for (Tensor& each : of_device) all.push_back(std::move(each));
    give(std::move(all), copies);
  });
}

cistern_status cistern_comm_reduce_add(const cistern_tensor_view* inputs, size_t count, int destination, int transport,
                                       cistern_tensor** sum) {
  return guarded([&] {
    require(sum, "sum");
    std::vector<Tensor> made;
    made.push_back(cistern::comm::reduce_add(views_of(inputs, count), Device(destination), transport_of(transport)));
    give(std::move(made), sum);
  });
}

cistern_status cistern_comm_scatter(const cistern_tensor_view* tensor, const int* devices,
                                    const cistern_tensor_view* out, size_t count, const int64_t* chunk_sizes, int dim,
                                    const cistern_stream* streams, cistern_tensor** parts, size_t* made) {
  return guarded([&] {
    require_one(devices, out);
    if (out != nullptr) {
      if (chunk_sizes != nullptr) throw InvalidArgument("both chunk_sizes and out: expected the sizes of out alone");
      const std::vector<TensorView> views = views_of(out, count);
      std::vector<Device> of_out;
      for (const TensorView& view : views) of_out.push_back(view.place.device());
      cistern::comm::scatter(view_of(tensor), views, dim, streams_of(streams, of_out));
      if (made != nullptr) *made = count;
      return;
    }
    require(parts, "parts");
    const std::vector<Device> to = devices_of(devices, count);
    std::optional<std::vector<std::int64_t>> sizes;
    if (chunk_sizes != nullptr) sizes.emplace(chunk_sizes, chunk_sizes + count);
    std::vector<Tensor> cut = cistern::comm::scatter(view_of(tensor), to, sizes, dim, streams_of(streams, to));
    const std::size_t number = cut.size();
    give(std::move(cut), parts);
    if (made != nullptr) *made = number;
  });
}

cistern_status cistern_comm_gather(const cistern_tensor_view* tensors, size_t count, int dim, const int* destination,
                                   const cistern_tensor_view* out, cistern_tensor** joined) {
  return guarded([&] {
    if (destination != nullptr && out != nullptr)
      throw InvalidArgument("both destination and out: expected one of them, or neither");
    if (out != nullptr) {
      cistern::comm::gather(views_of(tensors, count), dim, view_of(out));
      return;
    }
    require(joined, "joined");
    std::vector<Tensor> made;
    made.push_back(cistern::comm::gather(
        views_of(tensors, count), dim,
        cistern::c_api::place_of(destination == nullptr ? CISTERN_CURRENT_DEVICE : *destination)));
    give(std::move(made), joined);
  });
}
