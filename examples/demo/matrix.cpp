#include "matrix.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace cistern::demo {
namespace {

// Sixteen bytes: a vector register of every x86-64 and every AArch64. A compiler's type, since
// whether a compiler keeps an array of sums in registers depends on its mood.
template <class Real>
using Vector __attribute__((vector_size(16))) = Real;

// The result is computed in tiles of 4 rows and 2 vectors, whose sums fill eight of the sixteen
// vector registers of x86-64.
constexpr std::size_t kTileRows = 4;
template <class Real>
constexpr std::size_t kLanes = 16 / sizeof(Real);
template <class Real>
constexpr std::size_t kTileColumns = 2 * kLanes<Real>;
// Steps along the inner dimension for which a panel of the right operand is packed: 8 KiB, which
// stays in the first-level cache while every row of the left operand passes.
constexpr std::size_t kPanelDepth = 256;

template <class Real>
using Panel = std::array<Real, kPanelDepth * kTileColumns<Real>>;
template <class Real>
using Tile = std::array<Real, kTileRows * kTileColumns<Real>>;

// Copies rows [k, k + depth) and `columns` columns from j on, filled up with zeros to a tile's width.
template <class Real>
void pack(MatrixView<const Real> right, std::size_t k, std::size_t depth, std::size_t j, std::size_t columns,
          Panel<Real>& panel) {
  Real* row = panel.data();
  for (std::size_t step = 0; step < depth; ++step, row += kTileColumns<Real>) {
    const Real* source = right.data + (k + step) * right.row_stride + j * right.column_stride;
    for (std::size_t column = 0; column < columns; ++column) row[column] = source[column * right.column_stride];
    for (std::size_t column = columns; column < kTileColumns<Real>; ++column) row[column] = Real{0};
  }
}

// The sums over `depth` steps of `Rows` rows from `left` times the panel.
template <std::size_t Rows, class Real>
void accumulate(const Real* left, std::size_t row_stride, std::size_t column_stride, const Panel<Real>& panel,
                std::size_t depth, Tile<Real>& tile) {
  Vector<Real> sums[Rows][2] = {};
  const Real* row = panel.data();
  for (std::size_t step = 0; step < depth; ++step, row += kTileColumns<Real>) {
    Vector<Real> low, high;
    std::memcpy(&low, row, sizeof(low));
    std::memcpy(&high, row + kLanes<Real>, sizeof(high));
    for (std::size_t i = 0; i < Rows; ++i) {
      const Real factor = left[i * row_stride + step * column_stride];
      sums[i][0] += factor * low;
      sums[i][1] += factor * high;
    }
  }
  std::memcpy(tile.data(), sums, sizeof(sums));
}

template <class Real>
void accumulate(std::size_t rows, const Real* left, std::size_t row_stride, std::size_t column_stride,
                const Panel<Real>& panel, std::size_t depth, Tile<Real>& tile) {
  switch (rows) {
    case 1:
      return accumulate<1>(left, row_stride, column_stride, panel, depth, tile);
    case 2:
      return accumulate<2>(left, row_stride, column_stride, panel, depth, tile);
    case 3:
      return accumulate<3>(left, row_stride, column_stride, panel, depth, tile);
    default:
      return accumulate<kTileRows>(left, row_stride, column_stride, panel, depth, tile);
  }
}

// Adds the tile to what earlier panels left in the result, or starts it.
template <class Real>
void store(const Tile<Real>& tile, std::size_t rows, std::size_t columns, Real scale, bool first, Real* result,
           std::size_t row_stride) {
  const Real* sums = tile.data();
  for (std::size_t i = 0; i < rows; ++i, sums += kTileColumns<Real>, result += row_stride) {
    for (std::size_t j = 0; j < columns; ++j) result[j] = (first ? Real{0} : result[j]) + scale * sums[j];
  }
}

}  // namespace

template <class Real>
void multiply(MatrixView<const Real> left, MatrixView<const Real> right, MatrixView<Real> result, Real scale) {
  assert(left.columns == right.rows && result.rows == left.rows && result.columns == right.columns);
  assert(result.column_stride == 1 && left.columns > 0);
  alignas(16) Panel<Real> panel;
  alignas(16) Tile<Real> tile;
  for (std::size_t k = 0; k < left.columns; k += kPanelDepth) {
    const std::size_t depth = std::min(kPanelDepth, left.columns - k);
    for (std::size_t j = 0; j < result.columns; j += kTileColumns<Real>) {
      const std::size_t columns = std::min(kTileColumns<Real>, result.columns - j);
      pack(right, k, depth, j, columns, panel);
      for (std::size_t i = 0; i < result.rows; i += kTileRows) {
        const std::size_t rows = std::min(kTileRows, result.rows - i);
        accumulate(rows, left.data + i * left.row_stride + k * left.column_stride, left.row_stride, left.column_stride,
                   panel, depth, tile);
        store(tile, rows, columns, scale, k == 0, result.data + i * result.row_stride + j, result.row_stride);
      }
    }
  }
}

template void multiply(MatrixView<const float>, MatrixView<const float>, MatrixView<float>, float);
template void multiply(MatrixView<const double>, MatrixView<const double>, MatrixView<double>, double);

}  // namespace cistern::demo
