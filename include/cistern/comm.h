#pragma once

// Communication between devices: torch.cuda.comm.
//
// Tensors (tensor.h) are on the host or on a device, with any strides; what is read and what is written must not
// overlap, nor may two tensors that are written. All calls queue their work and return, but for gather to the host,
// which waits for the result. On its device each tensor is read and written as if on the current stream there: work
// that was queued on that stream is done before, and what is queued later comes after. So an input may be written or
// freed there at once. Copies between devices are the driver's peer copies; those to or from different devices run side
// by side, and peer access between the devices is enabled where there is any. Elements that lie apart are packed and
// unpacked by kernels of cistern, in memory of this allocator that is freed in stream order. Memory of its blocks is
// recorded (record_stream) on the other streams that use it; of a tensor that begins inside a block its block is looked
// for, in O(segments and blocks of one). Page-locked host memory must stay as it is until the work is done; pageable
// memory is read before the call returns. A capture may record all of this but what the host itself does, packing and
// waiting: NotSupported. What it has recorded, tensors on the host too, must stay where it is as long as the graph may
// be launched.
// Thread safety: any function may be called from any thread.
// Errors: InvalidArgument for tensors and devices that cannot be, naming the first, with nothing queued or
// allocated; OutOfMemoryError; NotSupported, DriverError and LibraryError where the driver or NCCL cannot, or fail:
// what was queued before is done, and what `out` holds then is not defined.

#include <cistern/device.h>
#include <cistern/export.h>
#include <cistern/stream.h>
#include <cistern/tensor.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

namespace cistern::comm {

// What moves the bytes.
enum class Transport {
  peer_copies,
  // NVIDIA's library (what CISTERN_LIBNCCL names, else libnccl.so.2), where it can be loaded: NotSupported elsewhere,
  // on simulated devices, for tensors on the host, for a device that is named twice, and for sums of types that NCCL
  // does not have (boolean, int16, uint16).
  nccl,
};

// Copies a tensor to each of the devices, the tensor's own among them too, in the order given. The copies' rows
// lie one after the other. With out instead of devices, to those tensors, which are on devices, of the same type and
// shape, and returned. (Exactly one of the two is given: the overload says which.)
[[nodiscard]] CISTERN_EXPORT std::vector<Tensor> broadcast(const TensorView& tensor, const std::vector<Device>& devices,
                                                           Transport transport = Transport::peer_copies);
// A list in braces is of devices, if it can be.
[[nodiscard]] inline std::vector<Tensor> broadcast(const TensorView& tensor, std::initializer_list<Device> devices,
                                                   Transport transport = Transport::peer_copies) {
  return broadcast(tensor, std::vector<Device>(devices), transport);
}
CISTERN_EXPORT std::vector<TensorView> broadcast(const TensorView& tensor, const std::vector<TensorView>& out,
                                                 Transport transport = Transport::peer_copies);

inline constexpr std::size_t kCoalescingBytes = 10485760;
// Copies tensors, all on one device or all on the host, to each of the devices: the result has a list for each
// device, with a tensor for each of `tensors`. Tensors of one type travel together, through a buffer of at most
// `buffer_bytes`, so that a device gets at most ceil(bytes / buffer_bytes) copies of a type; larger tensors travel
// alone. Those that travelled together share their memory, which goes with the last of them.
[[nodiscard]] CISTERN_EXPORT std::vector<std::vector<Tensor>> broadcast_coalesced(
    const std::vector<TensorView>& tensors, const std::vector<Device>& devices,
    std::size_t buffer_bytes = kCoalescingBytes, Transport transport = Transport::peer_copies);

// The sum of tensors that are on devices, of the same shape, type and layout (strides; the strides of sizes of 1 are
// no matter), on `destination`, by default the current device. It need not be the device of an input. The sum has their
// shape, type and order of dimensions, without gaps. Inputs are added one by one in their order: integers wrap around,
// float16 and bfloat16 are rounded after each addition, to the nearest, boolean is "or". NCCL adds in an order of its
// own.
[[nodiscard]] CISTERN_EXPORT Tensor reduce_add(const std::vector<TensorView>& inputs, Device destination = {},
                                               Transport transport = Transport::peer_copies);

// Streams to work on, one for each part; none is the default stream of the part's device.
using Streams = std::vector<std::optional<Stream>>;

// Cuts a tensor along `dim` (negative ones count from the last) and copies part i to devices[i]. `chunk_sizes`: one for
// each device, and together the size of that dimension. Without them the parts are equal, of ceil(size / devices), the
// last one smaller; as torch.chunk, that may be fewer parts than devices. `streams`: the parts are written, and their
// memory allocated, on these; whoever reads them elsewhere waits for them. Without any it is the default stream of each
// device, and the current one waits for it: NotSupported while the current one captures, which the default one cannot.
[[nodiscard]] CISTERN_EXPORT std::vector<Tensor> scatter(
    const TensorView& tensor, const std::vector<Device>& devices,
    const std::optional<std::vector<std::int64_t>>& chunk_sizes = std::nullopt, int dim = 0,
    const Streams& streams = {});
[[nodiscard]] inline std::vector<Tensor> scatter(
    const TensorView& tensor, std::initializer_list<Device> devices,
    const std::optional<std::vector<std::int64_t>>& chunk_sizes = std::nullopt, int dim = 0,
    const Streams& streams = {}) {
  return scatter(tensor, std::vector<Device>(devices), chunk_sizes, dim, streams);
}
// With out instead of devices: to those tensors, which are on devices, of the same type, and of the same shape but
// along `dim`, where they have the tensor's size together. (There are no chunk_sizes then.)
CISTERN_EXPORT std::vector<TensorView> scatter(const TensorView& tensor, const std::vector<TensorView>& out,
                                               int dim = 0, const Streams& streams = {});

// Joins tensors that are on devices, of one type and the same shape but along `dim`, on a device, by default
// the current one, or on the host. A result on the host is there when this returns; std::bad_alloc where the host has
// no memory for it.
[[nodiscard]] CISTERN_EXPORT Tensor gather(const std::vector<TensorView>& tensors, int dim = 0,
                                           const Place& destination = Device());
// With out instead of a destination: to that tensor, on the host or on a device.
CISTERN_EXPORT TensorView gather(const std::vector<TensorView>& tensors, int dim, const TensorView& out);

}  // namespace cistern::comm
