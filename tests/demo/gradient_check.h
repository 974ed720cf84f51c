#pragma once

#include "examples/demo/operations.h"

#include <cstddef>
#include <functional>
#include <random>
#include <string>

namespace cistern::demo {

// Compares gradients with central finite differences, in double: with steps of 1e-5 the
// differences are right to about 1e-9 of the numbers here, and a wrong formula is wrong by far more.
class GradientCheck {
 public:
  [[nodiscard]] const Context& context() const { return context_; }
  // Independent normal numbers.
  [[nodiscard]] Tensor<double> random_matrix(std::size_t rows, std::size_t columns);
  [[nodiscard]] Tensor<Token> random_tokens(std::size_t rows, std::size_t columns, Token vocabulary);
  // The sum of the products of the elements: with a fixed `weights`, a scalar of `tensor` whose
  // gradient by `tensor` is `weights`.
  [[nodiscard]] double inner(const Tensor<double>& weights, const Tensor<double>& tensor) const;

  // Expects `gradient` to be the derivative of `scalar` by the elements of `at`: of all of them,
  // or of `samples`, evenly spread. Leaves `at` as it was.
  void expect_gradient(const std::string& name, const Tensor<double>& at, const Tensor<double>& gradient,
                       const std::function<double()>& scalar, std::size_t samples = 1000) const;

 private:
  void set(const Tensor<double>& tensor, std::size_t index, double number) const;

  Context context_;
  std::mt19937_64 random_{20};
};

}  // namespace cistern::demo
