// From many tensors to one of which they are parts.

#include <cistern/comm.h>
#include <cistern/error.h>
#include <fmt/format.h>

#include <limits>

#include "integrations/comm/checks.h"
#include "integrations/comm/exchange.h"

namespace cistern::comm {
namespace {

// The shape of all tensors together.
std::vector<std::int64_t> check_parts(const std::vector<TensorView>& tensors, int dim, std::size_t* along) {
  if (tensors.empty()) throw InvalidArgument("gather of no tensors: expected at least one");
  const TensorView& first = tensors.front();
  check_on_device(first, numbered("tensor", 0));
  *along = wrapped_dimension(dim, first.dimensions());
  std::vector<std::int64_t> shape = first.shape;
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const std::string name = numbered("tensor", i);
    check_on_device(tensors[i], name);
    if (tensors[i].dtype != first.dtype)
      throw InvalidArgument(
          fmt::format("{} of {}: expected {}, as tensor 0", name, to_string(tensors[i].dtype), to_string(first.dtype)));
    check_shape_but(tensors[i], first.shape, *along, name);
    if (tensors[i].shape[*along] > std::numeric_limits<std::int64_t>::max() - shape[*along])
      throw InvalidArgument(
          fmt::format("{} of shape {}, behind {} of dimension {}: expected no more together than the "
                      "address space has",
                      name, shape_text(tensors[i].shape), shape[*along], *along));
    shape[*along] += tensors[i].shape[*along];
  }
  return shape;
}

// Each on its own device's stream, so that they run side by side.
void collect(const std::vector<TensorView>& tensors, std::size_t dim, const TensorView& out, bool is_recorded) {
  Exchange exchange;
  const bool is_on_host = out.place.is_host();
  if (is_on_host)
    for (const TensorView& tensor : tensors)
      if (tensor.elements() != 0) require_no_capture(stream_of(tensor), "the host waits for what is gathered");
  std::int64_t start = 0;
  for (const TensorView& tensor : tensors) {
    const Stream run = stream_of(tensor);
    const TensorView part = out.narrow(static_cast<int>(dim), start, tensor.shape[dim]);
    start += tensor.shape[dim];
    exchange.uses(tensor, run);
    if (!is_on_host) {
      if (is_recorded) exchange.uses(out, run);
      if (is_recorded) exchange.uses(out, stream_of(out));
      exchange.lend(stream_of(out), run);
    }
    exchange.copy(part, tensor, run);
  }
  is_on_host ? exchange.finish_on_host() : exchange.finish();
}

}  // namespace

Tensor gather(const std::vector<TensorView>& tensors, int dim, const Place& destination) {
  std::size_t along = 0;
  std::vector<std::int64_t> shape = check_parts(tensors, dim, &along);
  Tensor out = Tensor::empty(std::move(shape), tensors.front().dtype, destination);
  collect(tensors, along, out, false);
  return out;
}

TensorView gather(const std::vector<TensorView>& tensors, int dim, const TensorView& out) {
  std::size_t along = 0;
  const std::vector<std::int64_t> shape = check_parts(tensors, dim, &along);
  check_out(out, tensors.front().dtype, true, "out");
  check_shape(out, shape, "out");
  collect(tensors, along, out, true);
  return out;
}

}  // namespace cistern::comm
