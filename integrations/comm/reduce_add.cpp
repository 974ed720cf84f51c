// From many tensors to their sum.

#include <cistern/comm.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "integrations/comm/checks.h"
#include "integrations/comm/exchange.h"
#include "integrations/comm/transports.h"
#include "runtime/process_driver.h"

namespace cistern::comm {
namespace {

void check_layout_is(const TensorView& input, const TensorView& first, std::string_view name) {
  for (std::size_t d = 0; d < input.dimensions(); ++d)
    if (input.shape[d] > 1 && input.strides[d] != first.strides[d])
      throw InvalidArgument(fmt::format("{} of strides {}: expected the layout of input 0, {}", name,
                                        shape_text(input.strides), shape_text(first.strides)));
}

void check_inputs(const std::vector<TensorView>& inputs) {
  if (inputs.empty()) throw InvalidArgument("reduce_add of no inputs: expected at least one");
  const TensorView& first = inputs.front();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = numbered("input", i);
    check_on_device(inputs[i], name);
    if (inputs[i].dtype != first.dtype)
      throw InvalidArgument(
          fmt::format("{} of {}: expected {}, as input 0", name, to_string(inputs[i].dtype), to_string(first.dtype)));
    check_shape(inputs[i], first.shape, name);
    check_layout_is(inputs[i], first, name);
  }
}

// The same order of dimensions, without gaps: the dimensions by descending stride.
Tensor empty_like(const TensorView& like, int device) {
  std::vector<std::size_t> order(like.dimensions());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return like.strides[a] > like.strides[b]; });
  Tensor made = Tensor::empty(like.shape, like.dtype, Device(device));
  TensorView view = made.view();
  std::int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    view.strides[*d] = stride;
    stride *= std::max<std::int64_t>(view.shape[*d], 1);
  }
  return {std::move(view), made.owner()};
}

// Brings each input to where it is added: the first to the sum itself. Those of other devices first, so that their
// copies do not wait for what is done on the sum's.
std::vector<TensorView> bring(const std::vector<TensorView>& inputs, const TensorView& sum,
                              std::vector<Tensor>& arrived, Exchange& exchange) {
  const Stream adds = stream_of(sum);
  const int device = device_index(sum);
  std::vector<TensorView> addends = inputs;
  addends.front() = sum;
  for (const bool is_far : {true, false}) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if ((device_index(inputs[i]) != device) != is_far) continue;
      const Stream reads = stream_of(inputs[i]);
      exchange.uses(inputs[i], reads);
      if (i > 0 && is_far) {
        arrived.push_back(empty_like(inputs[i], device));
        addends[i] = arrived.back().view();
      }
      if (i > 0 && !is_far) continue;
      exchange.lend(adds, reads);
      exchange.copy(addends[i], inputs[i], reads);
    }
  }
  exchange.unpack();
  return addends;
}

// All inputs come at once, and each is added in its turn.
void sum_up(const std::vector<TensorView>& inputs, const TensorView& sum) {
  std::vector<Tensor> arrived;
  Exchange exchange;
  const Stream adds = stream_of(sum);
  const std::vector<TensorView> addends = bring(inputs, sum, arrived, exchange);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Stream reads = stream_of(inputs[i]);
    if (reads != adds) adds.wait_stream(reads);
    if (i > 0) exchange.add(sum, addends[i], adds);
  }
  exchange.finish();
}

}  // namespace

Tensor reduce_add(const std::vector<TensorView>& inputs, Device destination, Transport transport) {
  check_inputs(inputs);
  const int device = resolve_device(destination);
  if (transport == Transport::nccl) return reduce_by_nccl(inputs, device);
  Tensor sum = empty_like(inputs.front(), device);
  if (sum.view().elements() > 0) sum_up(inputs, sum);
  return sum;
}

}  // namespace cistern::comm
