#include "integrations/comm/checks.h"

#include <cistern/error.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/process_driver.h"

namespace cistern::comm {
namespace {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max() / 16;

// What two factors make, or more than may be.
std::int64_t product(std::int64_t a, std::int64_t b) { return b != 0 && a > kMost / b ? kMost + 1 : a * b; }

// From the first element to the last.
std::int64_t span_of(const TensorView& tensor) {
  std::int64_t span = 1;
  for (std::size_t d = 0; d < tensor.dimensions(); ++d)
    span = std::min(kMost + 1, span + product(tensor.strides[d], std::max<std::int64_t>(tensor.shape[d] - 1, 0)));
  return span;
}

// One complex number is two elements to the driver.
std::size_t alignment_of(DType type) {
  const std::size_t size = size_of(type);
  return type == DType::complex64 || type == DType::complex128 ? size / 2 : size;
}

// Whether each extent steps over all that the narrower ones reach.
bool overlaps_itself(const TensorView& tensor) {
  if (tensor.elements() == 0) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> extents;
  for (std::size_t d = 0; d < tensor.dimensions(); ++d)
    if (tensor.shape[d] > 1) extents.emplace_back(tensor.strides[d], tensor.shape[d]);
  std::sort(extents.begin(), extents.end());
  std::int64_t reached = 1;
  for (const auto& [stride, size] : extents) {
    if (stride < reached) return true;
    reached += stride * (size - 1);
  }
  return false;
}

}  // namespace

std::string place_text(int device) { return device < 0 ? "the host" : fmt::format("device {}", device); }
std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }
std::string numbered(std::string_view name, std::size_t index) { return fmt::format("{} {}", name, index); }

std::size_t wrapped_dimension(int dim, std::size_t dimensions) {
  const auto count = static_cast<int>(dimensions);
  if (dim < -count || dim >= count)
    throw InvalidArgument(fmt::format("dimension {} of a tensor of {} dimensions: expected {}", dim, count,
                                      count == 0 ? "one that has some" : fmt::format("{} to {}", -count, count - 1)));
  return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
}

int device_index(const TensorView& tensor) {
  return tensor.place.is_host() ? -1 : resolve_device(tensor.place.device());
}

void check_layout(const TensorView& tensor, std::string_view name) {
  if (tensor.dtype > DType::complex128)
    throw InvalidArgument(fmt::format("{} of dtype {}: expected one of DType's", name, static_cast<int>(tensor.dtype)));
  if (tensor.shape.size() != tensor.strides.size())
    throw InvalidArgument(fmt::format("{} of {} sizes and {} strides: expected as many", name, tensor.shape.size(),
                                      tensor.strides.size()));
  if (tensor.shape.size() > kMostDimensions)
    throw InvalidArgument(
        fmt::format("{} of {} dimensions: expected no more than {}", name, tensor.shape.size(), kMostDimensions));
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] < 0 || tensor.strides[d] < 0)
      throw InvalidArgument(fmt::format("{} of shape {} and strides {}: expected none below 0", name,
                                        shape_text(tensor.shape), shape_text(tensor.strides)));
    elements = product(elements, std::max<std::int64_t>(tensor.shape[d], 1));
  }
  if (elements > kMost || span_of(tensor) > kMost)
    throw InvalidArgument(fmt::format("{} of shape {} and strides {}: expected no more than the address space has",
                                      name, shape_text(tensor.shape), shape_text(tensor.strides)));
}

void check_tensor(const TensorView& tensor, std::string_view name) {
  check_layout(tensor, name);
  const int device = device_index(tensor);
  if (tensor.elements() == 0) return;
  if (tensor.data == nullptr)
    throw InvalidArgument(
        fmt::format("{} of shape {}: the address is null; expected its elements", name, shape_text(tensor.shape)));
  if (reinterpret_cast<std::uintptr_t>(tensor.first()) % alignment_of(tensor.dtype) != 0)
    throw InvalidArgument(fmt::format("{} of {} at {}: expected a multiple of {}", name, to_string(tensor.dtype),
                                      tensor.first(), alignment_of(tensor.dtype)));
  const std::optional<Device> owner = device_of(tensor.first());
  if ((owner ? owner->index() : -1) != device)
    throw InvalidArgument(fmt::format("{} at {}: it is on {}; expected {}, as it says", name, tensor.first(),
                                      place_text(owner ? owner->index() : -1), place_text(device)));
}

void check_on_device(const TensorView& tensor, std::string_view name) {
  check_tensor(tensor, name);
  if (tensor.place.is_host()) throw InvalidArgument(fmt::format("{} is on the host: expected one on a device", name));
}

void check_out(const TensorView& out, DType type, bool may_be_on_host, std::string_view name) {
  may_be_on_host ? check_tensor(out, name) : check_on_device(out, name);
  if (out.dtype != type)
    throw InvalidArgument(fmt::format("{} of {}: expected {}", name, to_string(out.dtype), to_string(type)));
  if (overlaps_itself(out))
    throw InvalidArgument(
        fmt::format("{} of shape {} and strides {}: some of its elements may be one; expected each at an "
                    "address of its own",
                    name, shape_text(out.shape), shape_text(out.strides)));
}

void check_shape(const TensorView& tensor, const std::vector<std::int64_t>& expected, std::string_view name) {
  if (tensor.shape == expected) return;
  throw InvalidArgument(
      fmt::format("{} of shape {}: expected {}", name, shape_text(tensor.shape), shape_text(expected)));
}

void check_shape_but(const TensorView& tensor, const std::vector<std::int64_t>& expected, std::size_t dim,
                     std::string_view name) {
  std::vector<std::int64_t> shape = expected;
  if (tensor.dimensions() == shape.size()) shape[dim] = tensor.shape[dim];
  if (tensor.shape == shape) return;
  throw InvalidArgument(fmt::format("{} of shape {}: expected {} but for dimension {}", name, shape_text(tensor.shape),
                                    shape_text(expected), dim));
}

}  // namespace cistern::comm
