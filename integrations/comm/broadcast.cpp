// From one tensor to many.

#include <cistern/comm.h>

#include "integrations/comm/checks.h"
#include "integrations/comm/exchange.h"
#include "integrations/comm/transports.h"

namespace cistern::comm {
namespace {

void copy_to_all(const TensorView& tensor, const std::vector<TensorView>& copies, bool are_recorded) {
  Exchange exchange;
  if (tensor.place.is_host()) {
    if (!tensor.is_contiguous())
      for (const TensorView& copy : copies) require_no_capture(stream_of(copy), kHostPacks);
    const TensorView source = copies.empty() ? tensor : exchange.packed(tensor, stream_of(copies.front()));
    for (const TensorView& copy : copies) {
      const Stream run = stream_of(copy);
      if (are_recorded) exchange.uses(copy, run);
      exchange.copy(copy, source, run);
    }
    return exchange.finish();
  }
  const Stream reads = stream_of(tensor);
  exchange.uses(tensor, reads);
  const TensorView source = copies.empty() ? tensor : exchange.packed(tensor, reads);
  for (const TensorView& copy : copies) {
    const Stream run = stream_of(copy);
    exchange.uses(tensor, run);
    if (are_recorded) exchange.uses(copy, run);
    exchange.lend(reads, run);
    exchange.copy(copy, source, run);
  }
  exchange.finish();
}

void send(const TensorView& tensor, const std::vector<TensorView>& copies, bool are_recorded, Transport transport) {
  if (tensor.elements() == 0) return;
  if (transport == Transport::nccl) return broadcast_by_nccl(tensor, copies);
  copy_to_all(tensor, copies, are_recorded);
}

}  // namespace

std::vector<Tensor> broadcast(const TensorView& tensor, const std::vector<Device>& devices, Transport transport) {
  check_tensor(tensor, "the tensor");
  const std::vector<int> indices = resolved(devices);
  std::vector<Tensor> copies;
  std::vector<TensorView> views;
  for (const int device : indices) {
    copies.push_back(Tensor::empty(tensor.shape, tensor.dtype, Device(device)));
    views.push_back(copies.back().view());
  }
  send(tensor, views, false, transport);
  return copies;
}

std::vector<TensorView> broadcast(const TensorView& tensor, const std::vector<TensorView>& out, Transport transport) {
  check_tensor(tensor, "the tensor");
  for (std::size_t i = 0; i < out.size(); ++i) {
    check_out(out[i], tensor.dtype, false, numbered("out", i));
    check_shape(out[i], tensor.shape, numbered("out", i));
  }
  send(tensor, out, true, transport);
  return out;
}

}  // namespace cistern::comm
