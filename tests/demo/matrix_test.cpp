#include "examples/demo/matrix.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace cistern::demo {
namespace {

// A matrix of its own numbers, stored row by row or, transposed, column by column.
struct Stored {
  Stored(std::size_t rows, std::size_t columns, bool by_columns, std::mt19937_64& random)
      : numbers(rows * columns), view{numbers.data(), rows, columns, columns, 1} {
    std::uniform_real_distribution<double> any(-1.0, 1.0);
    for (double& number : numbers) number = any(random);
    if (by_columns) view = MatrixView<const double>{numbers.data(), columns, rows, rows, 1}.transposed();
  }
  std::vector<double> numbers;
  MatrixView<const double> view;
};

double at(const MatrixView<const double>& view, std::size_t i, std::size_t j) {
  return view.data[i * view.row_stride + j * view.column_stride];
}

// Shapes beside whole tiles and panels, operands stored both ways, and a result inside of a wider
// matrix, whose other columns must stay as they were.
RC_GTEST_PROP(Multiply, EqualsTheDefinition, ()) {
  const auto rows = *rc::gen::inRange<std::size_t>(1, 20);
  const auto inner = *rc::gen::weightedOneOf<std::size_t>(
      {{8, rc::gen::inRange<std::size_t>(1, 20)}, {1, rc::gen::inRange<std::size_t>(250, 600)}});
  const auto columns = *rc::gen::inRange<std::size_t>(1, 20);
  const auto by_columns = *rc::gen::pair(rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>());
  std::mt19937_64 random(*rc::gen::arbitrary<std::uint64_t>());
  const Stored left(rows, inner, by_columns.first, random), right(inner, columns, by_columns.second, random);

  const std::size_t stride = columns + 3;
  std::vector<double> result(rows * stride, 7.0);
  multiply(left.view, right.view, MatrixView<double>{result.data(), rows, columns, stride, 1}, 0.5);

  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (std::size_t k = 0; k < inner; ++k) sum += at(left.view, i, k) * at(right.view, k, j);
      RC_ASSERT(std::abs(result[i * stride + j] - 0.5 * sum) < 1e-11);
    }
    for (std::size_t j = columns; j < stride; ++j) RC_ASSERT(result[i * stride + j] == 7.0);
  }
}

}  // namespace
}  // namespace cistern::demo
