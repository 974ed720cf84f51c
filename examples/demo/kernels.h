#pragma once

// The network's kernels: loops over matrices stored row by row, that know nothing of devices.
//
// All are instantiated for float, to train, and for double, to check gradients exactly.
// Outputs are overwritten and overlap no input. A gradient has the shape of what it is the
// gradient of. Thread safety: plain functions of their arguments.

#include <cstddef>
#include <cstdint>

namespace cistern::demo::kernels {

using Token = std::int32_t;

// result[r] = table[tokens[r]] + positions[r % length]; a sequence has `length` rows.
template <class Real>
void embed(const Token* tokens, const Real* table, const Real* positions, std::size_t rows, std::size_t length,
           std::size_t width, Real* result);
// The gradients of the whole tables, of `vocabulary` and `context` rows.
template <class Real>
void embed_backward(const Token* tokens, const Real* gradient, std::size_t rows, std::size_t length, std::size_t width,
                    std::size_t vocabulary, std::size_t context, Real* table_gradient, Real* positions_gradient);

// Each row to mean 0 and variance 1, then scaled by `gain` and shifted by `shift`.
// `means` and `scales` (one over the deviation) are kept for the backward pass, one a row.
template <class Real>
void normalize(const Real* input, const Real* gain, const Real* shift, std::size_t rows, std::size_t width,
               Real* result, Real* means, Real* scales);
template <class Real>
void normalize_backward(const Real* gradient, const Real* input, const Real* gain, const Real* means,
                        const Real* scales, std::size_t rows, std::size_t width, Real* input_gradient,
                        Real* gain_gradient, Real* shift_gradient);

template <class Real>
void add_to_rows(const Real* row, std::size_t rows, std::size_t width, Real* matrix);
template <class Real>
void sum_rows(const Real* matrix, std::size_t rows, std::size_t width, Real* sums);
template <class Real>
void add(const Real* left, const Real* right, std::size_t count, Real* result);

// The Gaussian error linear unit, by its usual approximation with tanh.
template <class Real>
void gelu(const Real* input, std::size_t count, Real* result);
template <class Real>
void gelu_backward(const Real* gradient, const Real* input, std::size_t count, Real* input_gradient);

// `sequences` of `length` rows each; a row of `qkv` holds queries, keys and values of all heads.
struct AttentionShape {
  std::size_t sequences = 0;
  std::size_t length = 0;
  std::size_t heads = 0;
  std::size_t head_width = 0;
  [[nodiscard]] std::size_t width() const noexcept { return heads * head_width; }
};

// Causal attention: position t sees positions 0 to t of its sequence. `weights` is a
// length x length matrix for each sequence and head, kept for the backward pass.
template <class Real>
void attend(const AttentionShape& shape, const Real* qkv, Real* weights, Real* result);
// `scores` is scratch of the shape of `weights`.
template <class Real>
void attend_backward(const AttentionShape& shape, const Real* gradient, const Real* qkv, const Real* weights,
                     Real* scores, Real* qkv_gradient);

// The mean over rows of -log softmax(logits)[target]; the softmax is kept for the backward pass.
template <class Real>
void cross_entropy(const Real* logits, const Token* targets, std::size_t rows, std::size_t width, Real* probabilities,
                   Real* loss);
template <class Real>
void cross_entropy_backward(const Real* probabilities, const Token* targets, std::size_t rows, std::size_t width,
                            Real* logits_gradient);

// One step of Adam with decoupled weight decay. The corrections are 1 - beta^t.
template <class Real>
struct AdamStep {
  Real learning_rate, first_decay, second_decay, first_correction, second_correction, epsilon, weight_decay;
};
template <class Real>
void adam(const AdamStep<Real>& step, const Real* gradient, std::size_t count, Real* value, Real* first, Real* second);

}  // namespace cistern::demo::kernels
