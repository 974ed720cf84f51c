#include "integrations/c_api/tensor.h"

#include <cistern/error.h>

#include <memory>
#include <string>
#include <utility>

#include "integrations/c_api/status.h"

namespace cistern::c_api {
namespace {

static_assert(static_cast<int>(DType::complex128) == CISTERN_COMPLEX128);

constexpr std::size_t kMostDimensions = 64;  // as all tensors'

std::vector<std::int64_t> numbers(const std::int64_t* first, std::size_t count) {
  require_count(count, "dimensions", kMostDimensions);
  if (count != 0) require_given(first, "shape");
  return std::vector<std::int64_t>(first, first + count);
}

}  // namespace

Place place_of(int device) { return device == CISTERN_HOST ? Place::host() : Place(Device(device)); }

DType type_of(int dtype) {
  if (dtype < CISTERN_BOOLEAN || dtype > CISTERN_COMPLEX128)
    throw InvalidArgument("dtype " + std::to_string(dtype) + ": expected one of CISTERN_BOOLEAN to CISTERN_COMPLEX128");
  return static_cast<DType>(dtype);
}

TensorView view_of(const cistern_tensor_view* view) {
  require_given(view, "tensor");
  TensorView made(view->data, type_of(view->dtype), numbers(view->shape, view->dimensions), place_of(view->device));
  made.byte_offset = view->byte_offset;
  if (view->strides != nullptr) made.strides = numbers(view->strides, view->dimensions);
  return made;
}

std::vector<TensorView> views_of(const cistern_tensor_view* views, std::size_t count) {
  require_count(count, "tensors");
  if (count != 0) require_given(views, "tensors");
  std::vector<TensorView> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(view_of(views + i));
  return made;
}

void give(std::vector<Tensor> tensors, cistern_tensor** places) {
  std::vector<std::unique_ptr<cistern_tensor>> made;
  for (Tensor& tensor : tensors) made.push_back(std::make_unique<cistern_tensor>(std::move(tensor)));
  for (std::size_t i = 0; i < made.size(); ++i) places[i] = made[i].release();
}

}  // namespace cistern::c_api

using cistern::Tensor;
using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::require_given;

cistern_status cistern_tensor_create(const int64_t* shape, size_t dimensions, int dtype, int device,
                                     cistern_tensor** tensor) {
  return guarded([&] {
    require(tensor, "tensor");
    *tensor = new cistern_tensor(Tensor::empty(cistern::c_api::numbers(shape, dimensions),
                                               cistern::c_api::type_of(dtype), cistern::c_api::place_of(device)));
  });
}

cistern_tensor_view cistern_tensor_get_view(const cistern_tensor* tensor) {
  const cistern::TensorView& view = tensor->tensor.view();
  return {view.data,
          view.byte_offset,
          static_cast<int>(view.dtype),
          view.place.is_host() ? CISTERN_HOST : view.place.device().index(),
          view.dimensions(),
          view.shape.data(),
          view.strides.data()};
}

void cistern_tensor_destroy(cistern_tensor* tensor) { delete tensor; }

cistern_status cistern_tensor_from_dlpack(DLManagedTensor* managed, cistern_tensor** tensor) {
  return guarded([&] {
    require(tensor, "tensor");
    auto made = std::make_unique<cistern_tensor>(Tensor());
    made->tensor = cistern::from_dlpack(reinterpret_cast<cistern::dlpack::DLManagedTensor*>(managed));
    *tensor = made.release();
  });
}

cistern_status cistern_tensor_to_dlpack(cistern_tensor* tensor, DLManagedTensor** managed) {
  return guarded([&] {
    require_given(tensor, "tensor");
    require(managed, "managed");
    // A share of its own, so that the tensor is whole if this throws.
    *managed =
        reinterpret_cast<DLManagedTensor*>(cistern::to_dlpack(Tensor(tensor->tensor.view(), tensor->tensor.owner())));
    delete tensor;
  });
}
