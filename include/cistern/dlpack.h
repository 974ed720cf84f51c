#pragma once

// The structures of DLPack (dlpack.h, version 0.x: DLTensor and DLManagedTensor), by which libraries hand tensors
// to each other. Laid out as those are, in a namespace, so that both may be included; a pointer to one may be cast to
// a pointer to the other.

#include <cstdint>

namespace cistern::dlpack {

enum DeviceType : std::int32_t { kCPU = 1, kCUDA = 2, kCUDAHost = 3, kCUDAManaged = 13 };
struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

enum DataTypeCode : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };
struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;      // in elements; null: rows one after the other
  std::uint64_t byte_offset;  // of the first element, from `data` on
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};

}  // namespace cistern::dlpack
