#include "integrations/comm/transports.h"

#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "integrations/comm/checks.h"
#include "integrations/comm/exchange.h"
#include "runtime/nccl.h"
#include "runtime/process_driver.h"

namespace cistern::comm {
namespace {

[[noreturn]] void refuse(std::string_view why) {
  throw NotSupported(fmt::format("NCCL: {}; Transport::peer_copies can do that", why));
}

// NCCL has one rank a device.
void require_different(const std::vector<NcclRank>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (ranks[i].device == ranks[k].device) refuse(fmt::format("device {} is there twice", ranks[i].device));
}

}  // namespace

std::vector<int> resolved(const std::vector<Device>& devices) {
  std::vector<int> indices;
  for (const Device device : devices) indices.push_back(resolve_device(device));
  return indices;
}

void broadcast_by_nccl(const TensorView& tensor, const std::vector<TensorView>& copies) {
  if (tensor.place.is_host()) refuse("the tensor is on the host");
  Exchange exchange;
  const Stream reads = stream_of(tensor);
  exchange.uses(tensor, reads);
  const int root = device_index(tensor);
  std::vector<NcclRank> ranks{{root, nullptr, nullptr, reads}};
  for (const TensorView& copy : copies) {
    if (!copy.is_contiguous()) refuse("the elements of out lie apart");
    const int device = device_index(copy);
    const Stream run = stream_of(copy);
    exchange.uses(copy, run);
    if (device == root && ranks.front().destination == nullptr)
      ranks.front().destination = copy.first();
    else
      ranks.push_back({device, copy.first(), copy.first(), run});
  }
  require_different(ranks);
  const TensorView source = exchange.packed(tensor, reads);
  ranks.front().source = source.first();
  if (ranks.front().destination == nullptr) ranks.front().destination = source.first();
  nccl_broadcast(process_driver(), ranks, source.bytes());
}

Tensor reduce_by_nccl(const std::vector<TensorView>& inputs, int destination) {
  std::vector<NcclRank> ranks;
  std::size_t root = inputs.size();
  for (const TensorView& input : inputs) {
    if (!input.is_contiguous()) refuse("the elements of an input lie apart");
    if (device_index(input) == destination) root = ranks.size();
    ranks.push_back({device_index(input), input.first(), nullptr, stream_of(input)});
  }
  require_different(ranks);
  if (root == inputs.size()) refuse(fmt::format("no input is on device {}, where the sum goes", destination));
  Exchange exchange;
  for (std::size_t i = 0; i < inputs.size(); ++i) exchange.uses(inputs[i], ranks[i].stream);
  Tensor sum = Tensor::empty(inputs.front().shape, inputs.front().dtype, Device(destination));
  ranks[root].destination = sum.data();
  if (sum.view().elements() > 0)
    nccl_reduce(process_driver(), ranks, static_cast<std::size_t>(sum.view().elements()), sum.view().dtype, root);
  return sum;
}

}  // namespace cistern::comm
