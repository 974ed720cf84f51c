#include "operations.h"

#include "matrix.h"

namespace cistern::demo {
namespace {

// Rough counts of floating-point operations for each element, for the modelled durations.
constexpr double kSimple = 1.0, kNormalize = 10.0, kExponential = 20.0;

template <class T>
double elements(const Tensor<T>& tensor) {
  return static_cast<double>(tensor.size());
}

template <class Real>
MatrixView<const Real> read(const Tensor<Real>& tensor) {
  return MatrixView<const Real>::contiguous(tensor.data(), tensor.rows(), tensor.columns());
}

template <class Real>
MatrixView<Real> written(const Tensor<Real>& tensor) {
  return MatrixView<Real>::contiguous(tensor.data(), tensor.rows(), tensor.columns());
}

double attention_operations(const AttentionShape& shape) {
  // Two products of length x length x width for each sequence.
  return 4.0 * static_cast<double>(shape.sequences * shape.length * shape.length * shape.width());
}

}  // namespace

template <class Real>
Tensor<Real> embed(const Context& context, const Tensor<Token>& tokens, const Tensor<Real>& table,
                   const Tensor<Real>& positions) {
  Tensor<Real> result(context, tokens.size(), table.columns());
  context.launch(
      kSimple * elements(result), {tokens.range(), table.range(), positions.range()}, {result.range()},
      [ids = tokens.data(), from = table.data(), at = positions.data(), rows = tokens.size(), length = tokens.columns(),
       width = table.columns(), to = result.data()] { kernels::embed(ids, from, at, rows, length, width, to); });
  return result;
}

template <class Real>
EmbedGradients<Real> embed_backward(const Context& context, const Tensor<Real>& gradient, const Tensor<Token>& tokens,
                                    const Tensor<Real>& table, const Tensor<Real>& positions) {
  EmbedGradients<Real> result{Tensor<Real>(context, table.rows(), table.columns()),
                              Tensor<Real>(context, positions.rows(), positions.columns())};
  context.launch(2 * kSimple * elements(gradient), {gradient.range(), tokens.range()},
                 {result.table.range(), result.positions.range()},
                 [ids = tokens.data(), from = gradient.data(), rows = tokens.size(), length = tokens.columns(),
                  width = table.columns(), vocabulary = table.rows(), positions_count = positions.rows(),
                  to_table = result.table.data(), to_positions = result.positions.data()] {
                   kernels::embed_backward(ids, from, rows, length, width, vocabulary, positions_count, to_table,
                                           to_positions);
                 });
  return result;
}

template <class Real>
Normalized<Real> normalize(const Context& context, const Tensor<Real>& input, const Tensor<Real>& gain,
                           const Tensor<Real>& shift) {
  Normalized<Real> result{Tensor<Real>(context, input.rows(), input.columns()), Tensor<Real>(context, input.rows(), 1),
                          Tensor<Real>(context, input.rows(), 1)};
  context.launch(
      kNormalize * elements(input), {input.range(), gain.range(), shift.range()},
      {result.result.range(), result.means.range(), result.scales.range()},
      [from = input.data(), by = gain.data(), plus = shift.data(), rows = input.rows(), width = input.columns(),
       to = result.result.data(), means = result.means.data(),
       scales = result.scales.data()] { kernels::normalize<Real>(from, by, plus, rows, width, to, means, scales); });
  return result;
}

template <class Real>
NormalizeGradients<Real> normalize_backward(const Context& context, const Tensor<Real>& gradient,
                                            const Tensor<Real>& input, const Tensor<Real>& gain,
                                            const Tensor<Real>& means, const Tensor<Real>& scales) {
  NormalizeGradients<Real> result{Tensor<Real>(context, input.rows(), input.columns()),
                                  Tensor<Real>(context, 1, input.columns()), Tensor<Real>(context, 1, input.columns())};
  context.launch(2 * kNormalize * elements(input),
                 {gradient.range(), input.range(), gain.range(), means.range(), scales.range()},
                 {result.input.range(), result.gain.range(), result.shift.range()},
                 [above = gradient.data(), from = input.data(), by = gain.data(), mean = means.data(),
                  scale = scales.data(), rows = input.rows(), width = input.columns(), to = result.input.data(),
                  to_gain = result.gain.data(), to_shift = result.shift.data()] {
                   kernels::normalize_backward<Real>(above, from, by, mean, scale, rows, width, to, to_gain, to_shift);
                 });
  return result;
}

template <class Real>
Tensor<Real> linear(const Context& context, const Tensor<Real>& input, const Tensor<Real>& weight,
                    const Tensor<Real>& bias) {
  Tensor<Real> result(context, input.rows(), weight.columns());
  context.launch(2.0 * elements(input) * static_cast<double>(weight.columns()),
                 {input.range(), weight.range(), bias.range()}, {result.range()},
                 [left = read(input), right = read(weight), plus = bias.data(), to = written(result)] {
                   multiply<Real>(left, right, to);
                   kernels::add_to_rows<Real>(plus, to.rows, to.columns, to.data);
                 });
  return result;
}

template <class Real>
LinearGradients<Real> linear_backward(const Context& context, const Tensor<Real>& gradient, const Tensor<Real>& input,
                                      const Tensor<Real>& weight) {
  const double operations = 2.0 * elements(input) * static_cast<double>(weight.columns());
  LinearGradients<Real> result;
  result.weight = Tensor<Real>(context, weight.rows(), weight.columns());
  context.launch(operations, {gradient.range(), input.range()}, {result.weight.range()},
                 [above = read(gradient), from = read(input), to = written(result.weight)] {
                   multiply<Real>(from.transposed(), above, to);
                 });
  result.bias = Tensor<Real>(context, 1, weight.columns());
  context.launch(kSimple * elements(gradient), {gradient.range()}, {result.bias.range()},
                 [above = read(gradient), to = result.bias.data()] {
                   kernels::sum_rows<Real>(above.data, above.rows, above.columns, to);
                 });
  result.input = Tensor<Real>(context, input.rows(), input.columns());
  context.launch(operations, {gradient.range(), weight.range()}, {result.input.range()},
                 [above = read(gradient), by = read(weight), to = written(result.input)] {
                   multiply<Real>(above, by.transposed(), to);
                 });
  return result;
}

template <class Real>
Tensor<Real> add(const Context& context, const Tensor<Real>& left, const Tensor<Real>& right) {
  Tensor<Real> result(context, left.rows(), left.columns());
  context.launch(kSimple * elements(left), {left.range(), right.range()}, {result.range()},
                 [a = left.data(), b = right.data(), count = left.size(), to = result.data()] {
                   kernels::add<Real>(a, b, count, to);
                 });
  return result;
}

template <class Real>
Tensor<Real> gelu(const Context& context, const Tensor<Real>& input) {
  Tensor<Real> result(context, input.rows(), input.columns());
  context.launch(
      kExponential * elements(input), {input.range()}, {result.range()},
      [from = input.data(), count = input.size(), to = result.data()] { kernels::gelu<Real>(from, count, to); });
  return result;
}

template <class Real>
Tensor<Real> gelu_backward(const Context& context, const Tensor<Real>& gradient, const Tensor<Real>& input) {
  Tensor<Real> result(context, input.rows(), input.columns());
  context.launch(kExponential * elements(input), {gradient.range(), input.range()}, {result.range()},
                 [above = gradient.data(), from = input.data(), count = input.size(), to = result.data()] {
                   kernels::gelu_backward<Real>(above, from, count, to);
                 });
  return result;
}

template <class Real>
Attended<Real> attend(const Context& context, const AttentionShape& shape, const Tensor<Real>& qkv) {
  Attended<Real> result{Tensor<Real>(context, qkv.rows(), shape.width()),
                        Tensor<Real>(context, shape.sequences * shape.heads * shape.length, shape.length)};
  context.launch(attention_operations(shape), {qkv.range()}, {result.result.range(), result.weights.range()},
                 [shape, from = qkv.data(), weights = result.weights.data(), to = result.result.data()] {
                   kernels::attend<Real>(shape, from, weights, to);
                 });
  return result;
}

template <class Real>
Tensor<Real> attend_backward(const Context& context, const AttentionShape& shape, const Tensor<Real>& gradient,
                             const Tensor<Real>& qkv, const Tensor<Real>& weights) {
  Tensor<Real> result(context, qkv.rows(), qkv.columns());
  const Tensor<Real> scores(context, weights.rows(), weights.columns());
  context.launch(2 * attention_operations(shape), {gradient.range(), qkv.range(), weights.range()},
                 {scores.range(), result.range()},
                 [shape, above = gradient.data(), from = qkv.data(), by = weights.data(), scratch = scores.data(),
                  to = result.data()] { kernels::attend_backward<Real>(shape, above, from, by, scratch, to); });
  return result;
}

template <class Real>
CrossEntropy<Real> cross_entropy(const Context& context, const Tensor<Real>& logits, const Tensor<Token>& targets) {
  CrossEntropy<Real> result{Tensor<Real>(context, 1, 1), Tensor<Real>(context, logits.rows(), logits.columns())};
  context.launch(
      kExponential * elements(logits), {logits.range(), targets.range()},
      {result.loss.range(), result.probabilities.range()},
      [from = read(logits), ids = targets.data(), to = result.probabilities.data(), loss = result.loss.data()] {
        kernels::cross_entropy<Real>(from.data, ids, from.rows, from.columns, to, loss);
      });
  return result;
}

template <class Real>
Tensor<Real> cross_entropy_backward(const Context& context, const Tensor<Real>& probabilities,
                                    const Tensor<Token>& targets) {
  Tensor<Real> result(context, probabilities.rows(), probabilities.columns());
  context.launch(kSimple * elements(probabilities), {probabilities.range(), targets.range()}, {result.range()},
                 [from = read(probabilities), ids = targets.data(), to = result.data()] {
                   kernels::cross_entropy_backward<Real>(from.data, ids, from.rows, from.columns, to);
                 });
  return result;
}

#define INSTANTIATE(Real)                                                                                              \
  template Tensor<Real> embed(const Context&, const Tensor<Token>&, const Tensor<Real>&, const Tensor<Real>&);         \
  template EmbedGradients<Real> embed_backward(const Context&, const Tensor<Real>&, const Tensor<Token>&,              \
                                               const Tensor<Real>&, const Tensor<Real>&);                              \
  template Normalized<Real> normalize(const Context&, const Tensor<Real>&, const Tensor<Real>&, const Tensor<Real>&);  \
  template NormalizeGradients<Real> normalize_backward(const Context&, const Tensor<Real>&, const Tensor<Real>&,       \
                                                       const Tensor<Real>&, const Tensor<Real>&, const Tensor<Real>&); \
  template Tensor<Real> linear(const Context&, const Tensor<Real>&, const Tensor<Real>&, const Tensor<Real>&);         \
  template LinearGradients<Real> linear_backward(const Context&, const Tensor<Real>&, const Tensor<Real>&,             \
                                                 const Tensor<Real>&);                                                 \
  template Tensor<Real> add(const Context&, const Tensor<Real>&, const Tensor<Real>&);                                 \
  template Tensor<Real> gelu(const Context&, const Tensor<Real>&);                                                     \
  template Tensor<Real> gelu_backward(const Context&, const Tensor<Real>&, const Tensor<Real>&);                       \
  template Attended<Real> attend(const Context&, const AttentionShape&, const Tensor<Real>&);                          \
  template Tensor<Real> attend_backward(const Context&, const AttentionShape&, const Tensor<Real>&,                    \
                                        const Tensor<Real>&, const Tensor<Real>&);                                     \
  template CrossEntropy<Real> cross_entropy(const Context&, const Tensor<Real>&, const Tensor<Token>&);                \
  template Tensor<Real> cross_entropy_backward(const Context&, const Tensor<Real>&, const Tensor<Token>&)

INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cistern::demo
