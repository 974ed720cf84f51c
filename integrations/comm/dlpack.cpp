// From and to DLPack.

#include <cistern/error.h>
#include <cistern/tensor.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "integrations/comm/checks.h"

namespace cistern {
namespace {

struct Known {
  DType type;
  std::uint8_t code;
  std::uint8_t bits;
};
constexpr Known kKnown[] = {
    {DType::boolean, dlpack::kBool, 8},         {DType::int8, dlpack::kInt, 8},
    {DType::uint8, dlpack::kUInt, 8},           {DType::int16, dlpack::kInt, 16},
    {DType::uint16, dlpack::kUInt, 16},         {DType::int32, dlpack::kInt, 32},
    {DType::uint32, dlpack::kUInt, 32},         {DType::int64, dlpack::kInt, 64},
    {DType::uint64, dlpack::kUInt, 64},         {DType::float16, dlpack::kFloat, 16},
    {DType::bfloat16, dlpack::kBfloat, 16},     {DType::float32, dlpack::kFloat, 32},
    {DType::float64, dlpack::kFloat, 64},       {DType::complex64, dlpack::kComplex, 64},
    {DType::complex128, dlpack::kComplex, 128},
};

DType type_of(const dlpack::DLDataType& type) {
  for (const Known& known : kKnown)
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return known.type;
  throw InvalidArgument(fmt::format("DLPack's type of code {}, {} bits and {} lanes: expected one that cistern has",
                                    type.code, type.bits, type.lanes));
}

dlpack::DLDataType dlpack_type(DType type) {
  for (const Known& known : kKnown)
    if (known.type == type) return {known.code, known.bits, 1};
  return {};
}

Place place_of(const dlpack::DLDevice& device) {
  if (device.device_type == dlpack::kCPU || device.device_type == dlpack::kCUDAHost) return Place::host();
  if ((device.device_type == dlpack::kCUDA || device.device_type == dlpack::kCUDAManaged) && device.device_id >= 0)
    return Device(device.device_id);
  throw InvalidArgument(fmt::format("DLPack's device {} of type {}: expected the host (1, 3) or a CUDA device (2, 13)",
                                    device.device_id, device.device_type));
}

// What an exported tensor keeps.
struct Exported {
  explicit Exported(Tensor given)
      : tensor(std::move(given)), view(tensor.view()), managed{to_dlpack(view), this, release} {}
  static void release(dlpack::DLManagedTensor* managed) { delete static_cast<Exported*>(managed->manager_ctx); }
  Tensor tensor;
  TensorView view;
  dlpack::DLManagedTensor managed;
};

}  // namespace

TensorView from_dlpack(const dlpack::DLTensor& tensor) {
  if (tensor.ndim > static_cast<std::int32_t>(comm::kMostDimensions))
    throw InvalidArgument(
        fmt::format("DLPack's tensor of {} dimensions: expected no more than {}", tensor.ndim, comm::kMostDimensions));
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr))
    throw InvalidArgument(fmt::format("DLPack's tensor of {} dimensions: expected their sizes", tensor.ndim));
  const DType type = type_of(tensor.dtype);
  const Place place = place_of(tensor.device);
  TensorView view(tensor.data, type, std::vector<std::int64_t>(tensor.shape, tensor.shape + tensor.ndim), place);
  view.byte_offset = tensor.byte_offset;
  if (tensor.strides != nullptr) view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  comm::check_layout(view, "DLPack's tensor");
  return view;
}

Tensor from_dlpack(dlpack::DLManagedTensor* tensor) {
  if (tensor == nullptr) throw InvalidArgument("DLPack's tensor is null: expected one");
  TensorView view = from_dlpack(tensor->dl_tensor);
  // Made empty first: what it is given to would be deleted if there were no memory for the count.
  struct Release {
    dlpack::DLManagedTensor* tensor = nullptr;
    ~Release() {
      if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
    }
  };
  auto release = std::make_shared<Release>();
  release->tensor = tensor;
  return {std::move(view), std::move(release)};
}

dlpack::DLTensor to_dlpack(TensorView& view) {
  const int device = comm::device_index(view);
  return {view.data == nullptr ? nullptr : view.first(),
          {device < 0 ? dlpack::kCPU : dlpack::kCUDA, device < 0 ? 0 : device},
          static_cast<std::int32_t>(view.dimensions()),
          dlpack_type(view.dtype),
          view.shape.data(),
          view.strides.data(),
          0};
}

dlpack::DLManagedTensor* to_dlpack(Tensor tensor) { return &(new Exported(std::move(tensor)))->managed; }

}  // namespace cistern
