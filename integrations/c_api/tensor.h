#pragma once

// Tensors of C as those of C++.

#include <cistern/c_api.h>
#include <cistern/tensor.h>

#include <cstddef>
#include <vector>

struct cistern_tensor {
  explicit cistern_tensor(cistern::Tensor given) : tensor(std::move(given)) {}
  cistern::Tensor tensor;
};

namespace cistern::c_api {

// All throw InvalidArgument, naming what is none.
[[nodiscard]] Place place_of(int device);
[[nodiscard]] DType type_of(int dtype);
[[nodiscard]] TensorView view_of(const cistern_tensor_view* view);
[[nodiscard]] std::vector<TensorView> views_of(const cistern_tensor_view* views, std::size_t count);
// Hands tensors over, all or none.
void give(std::vector<Tensor> tensors, cistern_tensor** places);

}  // namespace cistern::c_api
