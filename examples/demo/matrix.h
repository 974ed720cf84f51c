#pragma once

// Matrix multiplication on the host, for kernels that the simulated device runs.
//
// One routine with strides serves every product of the network: a transposed operand is one
// whose strides are exchanged. Thread safety: plain functions of their arguments.

#include <cstddef>

namespace cistern::demo {

// A matrix in memory: element (i, j) lies at data[i * row_stride + j * column_stride].
template <class Real>
struct MatrixView {
  Real* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t row_stride = 0;
  std::size_t column_stride = 1;

  // Rows stored one after the other, without gaps.
  [[nodiscard]] static MatrixView contiguous(Real* data, std::size_t rows, std::size_t columns) {
    return {data, rows, columns, columns, 1};
  }
  [[nodiscard]] MatrixView transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

// result = scale * (left times right). `result` overlaps neither operand, and its columns
// lie side by side (column_stride 1). Instantiated for float and double.
template <class Real>
void multiply(MatrixView<const Real> left, MatrixView<const Real> right, MatrixView<Real> result, Real scale = Real{1});

}  // namespace cistern::demo
