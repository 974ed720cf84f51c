#include "gradient_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace cistern::demo {

Tensor<double> GradientCheck::random_matrix(std::size_t rows, std::size_t columns) {
  std::normal_distribution<double> normal;
  std::vector<double> numbers(rows * columns);
  for (double& number : numbers) number = normal(random_);
  return upload(context_, numbers, rows, columns);
}

Tensor<Token> GradientCheck::random_tokens(std::size_t rows, std::size_t columns, Token vocabulary) {
  std::uniform_int_distribution<Token> any(0, vocabulary - 1);
  std::vector<Token> tokens(rows * columns);
  for (Token& token : tokens) token = any(random_);
  return upload(context_, tokens, rows, columns);
}

double GradientCheck::inner(const Tensor<double>& weights, const Tensor<double>& tensor) const {
  const std::vector<double> left = download(context_, weights), right = download(context_, tensor);
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

void GradientCheck::expect_gradient(const std::string& name, const Tensor<double>& at, const Tensor<double>& gradient,
                                    const std::function<double()>& scalar, std::size_t samples) const {
  ASSERT_EQ(gradient.rows(), at.rows()) << name;
  ASSERT_EQ(gradient.columns(), at.columns()) << name;
  constexpr double kStep = 1e-5, kTolerance = 1e-6;
  const std::vector<double> numbers = download(context_, at), expected = download(context_, gradient);
  const std::size_t stride = std::max<std::size_t>(1, numbers.size() / samples);
  for (std::size_t i = 0; i < numbers.size(); i += stride) {
    set(at, i, numbers[i] + kStep);
    const double above = scalar();
    set(at, i, numbers[i] - kStep);
    const double below = scalar();
    set(at, i, numbers[i]);
    const double slope = (above - below) / (2 * kStep);
    EXPECT_NEAR(expected[i], slope, kTolerance * std::max(1.0, std::abs(slope))) << name << ", element " << i;
  }
}

void GradientCheck::set(const Tensor<double>& tensor, std::size_t index, double number) const {
  copy_async(tensor.data() + index, &number, sizeof(number), context_.compute());
  context_.compute().synchronize();
}

}  // namespace cistern::demo
