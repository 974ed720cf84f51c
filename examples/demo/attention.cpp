// The attention kernels: see kernels.h.

#include "kernels.h"
#include "matrix.h"

#include <algorithm>
#include <cmath>

namespace cistern::demo::kernels {
namespace {

// The parts of one head of one sequence.
template <class Real>
struct Head {
  MatrixView<Real> queries, keys, values;

  Head(const AttentionShape& shape, Real* qkv, std::size_t sequence, std::size_t head) {
    const std::size_t stride = 3 * shape.width();
    Real* start = qkv + sequence * shape.length * stride + head * shape.head_width;
    queries = {start, shape.length, shape.head_width, stride, 1};
    keys = {start + shape.width(), shape.length, shape.head_width, stride, 1};
    values = {start + 2 * shape.width(), shape.length, shape.head_width, stride, 1};
  }
};

// The rows that a head contributes to the output of attention.
template <class Real>
MatrixView<Real> output_of(const AttentionShape& shape, Real* output, std::size_t sequence, std::size_t head) {
  return {output + sequence * shape.length * shape.width() + head * shape.head_width, shape.length, shape.head_width,
          shape.width(), 1};
}

template <class Real>
Real score_scale(const AttentionShape& shape) {
  return Real{1} / std::sqrt(static_cast<Real>(shape.head_width));
}

template <class Real>
void causal_softmax(std::size_t length, Real* scores) {
  for (std::size_t t = 0; t < length; ++t) {
    Real* row = scores + t * length;
    const Real greatest = *std::max_element(row, row + t + 1);
    Real total = 0;
    for (std::size_t s = 0; s <= t; ++s) total += row[s] = std::exp(row[s] - greatest);
    for (std::size_t s = 0; s <= t; ++s) row[s] /= total;
    std::fill(row + t + 1, row + length, Real{0});
  }
}

// Turns the gradient of the weights into the gradient of the scores. The weights of later
// positions are 0, and so become their gradients.
template <class Real>
void softmax_backward(std::size_t length, const Real* weights, Real* gradient) {
  for (std::size_t t = 0; t < length; ++t, weights += length, gradient += length) {
    Real mean = 0;
    for (std::size_t s = 0; s <= t; ++s) mean += weights[s] * gradient[s];
    for (std::size_t s = 0; s < length; ++s) gradient[s] = weights[s] * (gradient[s] - mean);
  }
}

}  // namespace

template <class Real>
void attend(const AttentionShape& shape, const Real* qkv, Real* weights, Real* result) {
  const std::size_t length = shape.length;
  for (std::size_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (std::size_t head = 0; head < shape.heads; ++head, weights += length * length) {
      const Head<const Real> part(shape, qkv, sequence, head);
      const auto scores = MatrixView<Real>::contiguous(weights, length, length);
      multiply(part.queries, part.keys.transposed(), scores, score_scale<Real>(shape));
      causal_softmax(length, weights);
      multiply(MatrixView<const Real>::contiguous(weights, length, length), part.values,
               output_of(shape, result, sequence, head));
    }
  }
}

template <class Real>
void attend_backward(const AttentionShape& shape, const Real* gradient, const Real* qkv, const Real* weights,
                     Real* scores, Real* qkv_gradient) {
  const std::size_t length = shape.length;
  const Real scale = score_scale<Real>(shape);
  for (std::size_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (std::size_t head = 0; head < shape.heads; ++head, weights += length * length, scores += length * length) {
      const Head<const Real> part(shape, qkv, sequence, head);
      const Head<Real> part_gradient(shape, qkv_gradient, sequence, head);
      const auto output_gradient = output_of(shape, gradient, sequence, head);
      const auto weight_view = MatrixView<const Real>::contiguous(weights, length, length);
      multiply(weight_view.transposed(), output_gradient, part_gradient.values);
      multiply(output_gradient, part.values.transposed(), MatrixView<Real>::contiguous(scores, length, length));
      softmax_backward(length, weights, scores);
      const auto score_gradient = MatrixView<const Real>::contiguous(scores, length, length);
      multiply(score_gradient, part.keys, part_gradient.queries, scale);
      multiply(score_gradient.transposed(), part.queries, part_gradient.keys, scale);
    }
  }
}

template void attend(const AttentionShape&, const float*, float*, float*);
template void attend(const AttentionShape&, const double*, double*, double*);
template void attend_backward(const AttentionShape&, const float*, const float*, const float*, float*, float*);
template void attend_backward(const AttentionShape&, const double*, const double*, const double*, double*, double*);

}  // namespace cistern::demo::kernels
