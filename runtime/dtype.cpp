#include <cistern/tensor.h>

namespace cistern {

std::size_t size_of(DType type) noexcept {
  constexpr std::size_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16};
  return sizes[static_cast<std::size_t>(type)];
}

const char* to_string(DType type) noexcept {
  constexpr const char* names[] = {"boolean",  "int8",    "uint8",   "int16",     "uint16",
                                   "int32",    "uint32",  "int64",   "uint64",    "float16",
                                   "bfloat16", "float32", "float64", "complex64", "complex128"};
  return names[static_cast<std::size_t>(type)];
}

}  // namespace cistern
