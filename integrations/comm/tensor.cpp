#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/tensor.h>
#include <fmt/format.h>

#include <limits>
#include <new>
#include <string>
#include <utility>

#include "integrations/comm/checks.h"

namespace cistern {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::vector<std::int64_t> strides_of_rows(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    // Beyond what there is: check_layout refuses it.
    if (shape[d] > 0) stride = stride > kMost / shape[d] ? kMost : stride * shape[d];
  }
  return strides;
}

// As the driver's device memory is: what the host's own is aligned to, too.
constexpr std::align_val_t kAlignment{256};

std::shared_ptr<void> host_memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return {::operator new(bytes, kAlignment), [](void* memory) { ::operator delete(memory, kAlignment); }};
}

std::shared_ptr<void> device_memory(std::size_t bytes, Device device, const std::optional<Stream>& stream) {
  if (bytes == 0) return nullptr;
  const DeviceGuard guard(device);  // whose default streams are meant
  return {allocate(bytes, stream ? *stream : current_stream()), [](void* block) { deallocate(block); }};
}

}  // namespace

TensorView::TensorView(void* pointer, DType type, std::vector<std::int64_t> sizes, Place where)
    : data(pointer), dtype(type), shape(std::move(sizes)), strides(strides_of_rows(shape)), place(where) {}

TensorView::TensorView(void* pointer, DType type, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps,
                       Place where, std::size_t offset)
    : data(pointer),
      byte_offset(offset),
      dtype(type),
      shape(std::move(sizes)),
      strides(std::move(steps)),
      place(where) {}

std::int64_t TensorView::elements() const noexcept {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::size_t TensorView::bytes() const noexcept { return static_cast<std::size_t>(elements()) * size_of(dtype); }

bool TensorView::is_contiguous() const noexcept {
  if (elements() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

TensorView TensorView::narrow(int dim, std::int64_t start, std::int64_t length) const {
  const std::size_t along = comm::wrapped_dimension(dim, dimensions());
  if (start < 0 || length < 0 || start > shape[along] - length)
    throw InvalidArgument(fmt::format("narrow to {} from {} on: expected a part of dimension {}, of size {}", length,
                                      start, along, shape[along]));
  TensorView part = *this;
  part.shape[along] = length;
  part.byte_offset += static_cast<std::size_t>(start * strides[along]) * size_of(dtype);
  return part;
}

TensorView TensorView::transpose(int a, int b) const {
  const std::size_t first = comm::wrapped_dimension(a, dimensions());
  const std::size_t second = comm::wrapped_dimension(b, dimensions());
  TensorView other = *this;
  std::swap(other.shape[first], other.shape[second]);
  std::swap(other.strides[first], other.strides[second]);
  return other;
}

Tensor Tensor::empty(std::vector<std::int64_t> shape, DType dtype, Place place, const std::optional<Stream>& stream) {
  TensorView view(nullptr, dtype, std::move(shape), place);
  comm::check_layout(view, "a new tensor");
  if (place.is_host()) {
    std::shared_ptr<void> memory = host_memory(view.bytes());
    view.data = memory.get();
    return Tensor(std::move(view), std::move(memory));
  }
  const int device = comm::device_index(view);
  view.place = Device(device);
  if (stream && !stream->device().is_current() && stream->device() != Device(device))
    throw InvalidArgument(
        fmt::format("a new tensor on device {} for {}: expected a stream of that device", device, stream->to_string()));
  std::shared_ptr<void> memory = device_memory(view.bytes(), Device(device), stream);
  view.data = memory.get();
  return Tensor(std::move(view), std::move(memory));
}

Tensor::Tensor(Tensor&& other) noexcept
    : view_(std::exchange(other.view_, TensorView())), owner_(std::move(other.owner_)) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this != &other) {
    view_ = std::exchange(other.view_, TensorView());
    owner_ = std::exchange(other.owner_, nullptr);
  }
  return *this;
}

}  // namespace cistern
