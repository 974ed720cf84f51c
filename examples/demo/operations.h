#pragma once

// The network's operations, eagerly: each allocates its results, queues its kernel on the
// compute stream and returns. Numbers exist when the stream gets there.
//
// Each backward operation takes the gradient of the result and returns that of the inputs.
// All throw OutOfMemoryError where the result does not fit. Instantiated for float and double.

#include "kernels.h"
#include "tensor.h"

namespace cistern::demo {

using kernels::AttentionShape;
using kernels::Token;

// `tokens` has one row for each sequence; the result has one row for each token.
template <class Real>
Tensor<Real> embed(const Context& context, const Tensor<Token>& tokens, const Tensor<Real>& table,
                   const Tensor<Real>& positions);
template <class Real>
struct EmbedGradients {
  Tensor<Real> table, positions;
};
template <class Real>
EmbedGradients<Real> embed_backward(const Context& context, const Tensor<Real>& gradient, const Tensor<Token>& tokens,
                                    const Tensor<Real>& table, const Tensor<Real>& positions);

template <class Real>
struct Normalized {
  Tensor<Real> result, means, scales;
};
template <class Real>
Normalized<Real> normalize(const Context& context, const Tensor<Real>& input, const Tensor<Real>& gain,
                           const Tensor<Real>& shift);
template <class Real>
struct NormalizeGradients {
  Tensor<Real> input, gain, shift;
};
template <class Real>
NormalizeGradients<Real> normalize_backward(const Context& context, const Tensor<Real>& gradient,
                                            const Tensor<Real>& input, const Tensor<Real>& gain,
                                            const Tensor<Real>& means, const Tensor<Real>& scales);

// input times weight, plus the bias in each row.
template <class Real>
Tensor<Real> linear(const Context& context, const Tensor<Real>& input, const Tensor<Real>& weight,
                    const Tensor<Real>& bias);
template <class Real>
struct LinearGradients {
  Tensor<Real> input, weight, bias;
};
template <class Real>
LinearGradients<Real> linear_backward(const Context& context, const Tensor<Real>& gradient, const Tensor<Real>& input,
                                      const Tensor<Real>& weight);

template <class Real>
Tensor<Real> add(const Context& context, const Tensor<Real>& left, const Tensor<Real>& right);
template <class Real>
Tensor<Real> gelu(const Context& context, const Tensor<Real>& input);
template <class Real>
Tensor<Real> gelu_backward(const Context& context, const Tensor<Real>& gradient, const Tensor<Real>& input);

template <class Real>
struct Attended {
  Tensor<Real> result, weights;
};
template <class Real>
Attended<Real> attend(const Context& context, const AttentionShape& shape, const Tensor<Real>& qkv);
template <class Real>
Tensor<Real> attend_backward(const Context& context, const AttentionShape& shape, const Tensor<Real>& gradient,
                             const Tensor<Real>& qkv, const Tensor<Real>& weights);

template <class Real>
struct CrossEntropy {
  Tensor<Real> loss, probabilities;
};
template <class Real>
CrossEntropy<Real> cross_entropy(const Context& context, const Tensor<Real>& logits, const Tensor<Token>& targets);
template <class Real>
Tensor<Real> cross_entropy_backward(const Context& context, const Tensor<Real>& probabilities,
                                    const Tensor<Token>& targets);

}  // namespace cistern::demo
