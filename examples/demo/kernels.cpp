#include "kernels.h"

#include <algorithm>
#include <cmath>

namespace cistern::demo::kernels {

template <class Real>
void embed(const Token* tokens, const Real* table, const Real* positions, std::size_t rows, std::size_t length,
           std::size_t width, Real* result) {
  for (std::size_t r = 0; r < rows; ++r) {
    const Real* token = table + static_cast<std::size_t>(tokens[r]) * width;
    const Real* position = positions + (r % length) * width;
    for (std::size_t j = 0; j < width; ++j) result[r * width + j] = token[j] + position[j];
  }
}

template <class Real>
void embed_backward(const Token* tokens, const Real* gradient, std::size_t rows, std::size_t length, std::size_t width,
                    std::size_t vocabulary, std::size_t context, Real* table_gradient, Real* positions_gradient) {
  std::fill_n(table_gradient, vocabulary * width, Real{0});
  std::fill_n(positions_gradient, context * width, Real{0});
  for (std::size_t r = 0; r < rows; ++r) {
    Real* token = table_gradient + static_cast<std::size_t>(tokens[r]) * width;
    Real* position = positions_gradient + (r % length) * width;
    for (std::size_t j = 0; j < width; ++j) {
      token[j] += gradient[r * width + j];
      position[j] += gradient[r * width + j];
    }
  }
}

template <class Real>
void normalize(const Real* input, const Real* gain, const Real* shift, std::size_t rows, std::size_t width,
               Real* result, Real* means, Real* scales) {
  // Keeps a constant row from dividing by zero; small beside the variances that occur.
  constexpr Real kEpsilon = static_cast<Real>(1e-5);
  const Real share = Real{1} / static_cast<Real>(width);
  for (std::size_t r = 0; r < rows; ++r, input += width, result += width) {
    Real mean = 0, variance = 0;
    for (std::size_t j = 0; j < width; ++j) mean += input[j] * share;
    for (std::size_t j = 0; j < width; ++j) variance += (input[j] - mean) * (input[j] - mean) * share;
    const Real scale = Real{1} / std::sqrt(variance + kEpsilon);
    for (std::size_t j = 0; j < width; ++j) result[j] = (input[j] - mean) * scale * gain[j] + shift[j];
    means[r] = mean;
    scales[r] = scale;
  }
}

template <class Real>
void normalize_backward(const Real* gradient, const Real* input, const Real* gain, const Real* means,
                        const Real* scales, std::size_t rows, std::size_t width, Real* input_gradient,
                        Real* gain_gradient, Real* shift_gradient) {
  const Real share = Real{1} / static_cast<Real>(width);
  std::fill_n(gain_gradient, width, Real{0});
  std::fill_n(shift_gradient, width, Real{0});
  for (std::size_t r = 0; r < rows; ++r, gradient += width, input += width, input_gradient += width) {
    const Real mean = means[r], scale = scales[r];
    // With n the normalised row and g the gradient times the gain, the input's gradient is
    // scale * (g - mean(g) - n * mean(g n)): what moves the mean or the variance is taken out.
    Real mean_g = 0, mean_gn = 0;
    for (std::size_t j = 0; j < width; ++j) {
      const Real normalized = (input[j] - mean) * scale;
      gain_gradient[j] += gradient[j] * normalized;
      shift_gradient[j] += gradient[j];
      mean_g += gradient[j] * gain[j] * share;
      mean_gn += gradient[j] * gain[j] * normalized * share;
    }
    for (std::size_t j = 0; j < width; ++j) {
      const Real normalized = (input[j] - mean) * scale;
      input_gradient[j] = scale * (gradient[j] * gain[j] - mean_g - normalized * mean_gn);
    }
  }
}

template <class Real>
void add_to_rows(const Real* row, std::size_t rows, std::size_t width, Real* matrix) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < width; ++j) matrix[r * width + j] += row[j];
  }
}

template <class Real>
void sum_rows(const Real* matrix, std::size_t rows, std::size_t width, Real* sums) {
  std::fill_n(sums, width, Real{0});
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < width; ++j) sums[j] += matrix[r * width + j];
  }
}

template <class Real>
void add(const Real* left, const Real* right, std::size_t count, Real* result) {
  for (std::size_t i = 0; i < count; ++i) result[i] = left[i] + right[i];
}

namespace {

// gelu(x) = x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), and (1 + tanh u) / 2 is
// the logistic function of 2u, which takes one exponential.
template <class Real>
struct Gelu {
  static constexpr Real kFactor = static_cast<Real>(2 * 0.7978845608028654);
  static constexpr Real kCubic = static_cast<Real>(0.044715);
  static Real gate(Real x) { return Real{1} / (Real{1} + std::exp(-kFactor * (x + kCubic * x * x * x))); }
  static Real slope(Real x) {
    const Real g = gate(x);
    return g + x * g * (Real{1} - g) * kFactor * (Real{1} + Real{3} * kCubic * x * x);
  }
};

}  // namespace

template <class Real>
void gelu(const Real* input, std::size_t count, Real* result) {
  for (std::size_t i = 0; i < count; ++i) result[i] = input[i] * Gelu<Real>::gate(input[i]);
}

template <class Real>
void gelu_backward(const Real* gradient, const Real* input, std::size_t count, Real* input_gradient) {
  for (std::size_t i = 0; i < count; ++i) input_gradient[i] = gradient[i] * Gelu<Real>::slope(input[i]);
}

template <class Real>
void cross_entropy(const Real* logits, const Token* targets, std::size_t rows, std::size_t width, Real* probabilities,
                   Real* loss) {
  Real sum = 0;
  for (std::size_t r = 0; r < rows; ++r, logits += width, probabilities += width) {
    const Real greatest = *std::max_element(logits, logits + width);
    Real total = 0;
    for (std::size_t j = 0; j < width; ++j) total += probabilities[j] = std::exp(logits[j] - greatest);
    for (std::size_t j = 0; j < width; ++j) probabilities[j] /= total;
    sum += std::log(total) + greatest - logits[targets[r]];
  }
  *loss = sum / static_cast<Real>(rows);
}

template <class Real>
void cross_entropy_backward(const Real* probabilities, const Token* targets, std::size_t rows, std::size_t width,
                            Real* logits_gradient) {
  const Real share = Real{1} / static_cast<Real>(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    Real* row = logits_gradient + r * width;
    for (std::size_t j = 0; j < width; ++j) row[j] = probabilities[r * width + j] * share;
    row[targets[r]] -= share;
  }
}

template <class Real>
void adam(const AdamStep<Real>& step, const Real* gradient, std::size_t count, Real* value, Real* first, Real* second) {
  for (std::size_t i = 0; i < count; ++i) {
    first[i] = step.first_decay * first[i] + (Real{1} - step.first_decay) * gradient[i];
    second[i] = step.second_decay * second[i] + (Real{1} - step.second_decay) * gradient[i] * gradient[i];
    const Real mean = first[i] / step.first_correction;
    const Real deviation = std::sqrt(second[i] / step.second_correction) + step.epsilon;
    value[i] -= step.learning_rate * (mean / deviation + step.weight_decay * value[i]);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): a type cannot stand in parentheses.
#define INSTANTIATE(Real)                                                                                        \
  template void embed(const Token*, const Real*, const Real*, std::size_t, std::size_t, std::size_t, Real*);     \
  template void embed_backward(const Token*, const Real*, std::size_t, std::size_t, std::size_t, std::size_t,    \
                               std::size_t, Real*, Real*);                                                       \
  template void normalize(const Real*, const Real*, const Real*, std::size_t, std::size_t, Real*, Real*, Real*); \
  template void normalize_backward(const Real*, const Real*, const Real*, const Real*, const Real*, std::size_t, \
                                   std::size_t, Real*, Real*, Real*);                                            \
  template void add_to_rows(const Real*, std::size_t, std::size_t, Real*);                                       \
  template void sum_rows(const Real*, std::size_t, std::size_t, Real*);                                          \
  template void add(const Real*, const Real*, std::size_t, Real*);                                               \
  template void gelu(const Real*, std::size_t, Real*);                                                           \
  template void gelu_backward(const Real*, const Real*, std::size_t, Real*);                                     \
  template void cross_entropy(const Real*, const Token*, std::size_t, std::size_t, Real*, Real*);                \
  template void cross_entropy_backward(const Real*, const Token*, std::size_t, std::size_t, Real*);              \
  template void adam(const AdamStep<Real>&, const Real*, std::size_t, Real*, Real*, Real*)

INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace cistern::demo::kernels
