#include "layers.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace cistern::demo {
namespace {

// Keeps the size of what passes through: each result is a sum over the inputs.
double even_deviation(std::size_t inputs) { return 1.0 / std::sqrt(static_cast<double>(inputs)); }

}  // namespace

template <class Real>
Parameter<Real> normal_parameter(const Context& context, std::size_t rows, std::size_t columns, double deviation,
                                 Random& random) {
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<Real> numbers(rows * columns);
  for (Real& number : numbers) number = static_cast<Real>(normal(random));
  return {upload(context, numbers, rows, columns), {}, true};
}

template <class Real>
Parameter<Real> constant_parameter(const Context& context, std::size_t columns, Real number) {
  return {upload(context, std::vector<Real>(columns, number), 1, columns), {}, false};
}

template <class Real>
Linear<Real>::Linear(const Context& context, std::size_t inputs, std::size_t outputs, double scale, Random& random)
    : weight_(normal_parameter<Real>(context, inputs, outputs, scale * even_deviation(inputs), random)),
      bias_(constant_parameter(context, outputs, Real{0})) {}

template <class Real>
Tensor<Real> Linear<Real>::forward(const Context& context, const Tensor<Real>& input, Saved& saved) const {
  saved = input;
  return linear(context, input, weight_.value, bias_.value);
}

template <class Real>
Tensor<Real> Linear<Real>::backward(const Context& context, const Tensor<Real>& gradient, Saved saved) {
  LinearGradients<Real> gradients = linear_backward(context, gradient, saved, weight_.value);
  weight_.gradient = std::move(gradients.weight);
  bias_.gradient = std::move(gradients.bias);
  return std::move(gradients.input);
}

template <class Real>
void Linear<Real>::append_parameters(std::vector<Parameter<Real>*>& parameters) {
  parameters.insert(parameters.end(), {&weight_, &bias_});
}

template <class Real>
LayerNorm<Real>::LayerNorm(const Context& context, std::size_t width)
    : gain_(constant_parameter(context, width, Real{1})), shift_(constant_parameter(context, width, Real{0})) {}

template <class Real>
Tensor<Real> LayerNorm<Real>::forward(const Context& context, const Tensor<Real>& input, Saved& saved) const {
  Normalized<Real> normalized = normalize(context, input, gain_.value, shift_.value);
  saved = {input, std::move(normalized.means), std::move(normalized.scales)};
  return std::move(normalized.result);
}

template <class Real>
Tensor<Real> LayerNorm<Real>::backward(const Context& context, const Tensor<Real>& gradient, Saved saved) {
  NormalizeGradients<Real> gradients =
      normalize_backward(context, gradient, saved.input, gain_.value, saved.means, saved.scales);
  gain_.gradient = std::move(gradients.gain);
  shift_.gradient = std::move(gradients.shift);
  return std::move(gradients.input);
}

template <class Real>
void LayerNorm<Real>::append_parameters(std::vector<Parameter<Real>*>& parameters) {
  parameters.insert(parameters.end(), {&gain_, &shift_});
}

template <class Real>
Attention<Real>::Attention(const Context& context, std::size_t width, std::size_t heads, double scale, Random& random)
    : heads_(heads), project_(context, width, 3 * width, 1.0, random), join_(context, width, width, scale, random) {
  if (heads == 0 || width % heads != 0) {
    throw std::invalid_argument("attention: a width of " + std::to_string(width) + " cannot be shared by " +
                                std::to_string(heads) + " heads");
  }
}

template <class Real>
Tensor<Real> Attention<Real>::forward(const Context& context, const Tensor<Real>& input, std::size_t sequences,
                                      Saved& saved) const {
  saved.shape = {sequences, input.rows() / sequences, heads_, input.columns() / heads_};
  saved.qkv = project_.forward(context, input, saved.project);
  Attended<Real> attended = attend(context, saved.shape, saved.qkv);
  saved.weights = std::move(attended.weights);
  return join_.forward(context, attended.result, saved.join);
}

template <class Real>
Tensor<Real> Attention<Real>::backward(const Context& context, Tensor<Real> gradient, Saved saved) {
  gradient = join_.backward(context, gradient, std::move(saved.join));
  gradient = attend_backward(context, saved.shape, gradient, saved.qkv, saved.weights);
  saved.qkv = saved.weights = {};
  return project_.backward(context, gradient, std::move(saved.project));
}

template <class Real>
void Attention<Real>::append_parameters(std::vector<Parameter<Real>*>& parameters) {
  project_.append_parameters(parameters);
  join_.append_parameters(parameters);
}

template <class Real>
FeedForward<Real>::FeedForward(const Context& context, std::size_t width, double scale, Random& random)
    : widen_(context, width, 4 * width, 1.0, random), narrow_(context, 4 * width, width, scale, random) {}

template <class Real>
Tensor<Real> FeedForward<Real>::forward(const Context& context, const Tensor<Real>& input, Saved& saved) const {
  saved.widened = widen_.forward(context, input, saved.widen);
  return narrow_.forward(context, gelu(context, saved.widened), saved.narrow);
}

template <class Real>
Tensor<Real> FeedForward<Real>::backward(const Context& context, Tensor<Real> gradient, Saved saved) {
  gradient = narrow_.backward(context, gradient, std::move(saved.narrow));
  gradient = gelu_backward(context, gradient, saved.widened);
  saved.widened = {};
  return widen_.backward(context, gradient, std::move(saved.widen));
}

template <class Real>
void FeedForward<Real>::append_parameters(std::vector<Parameter<Real>*>& parameters) {
  widen_.append_parameters(parameters);
  narrow_.append_parameters(parameters);
}

template <class Real>
Block<Real>::Block(const Context& context, std::size_t width, std::size_t heads, double scale, Random& random)
    : attention_norm_(context, width),
      attention_(context, width, heads, scale, random),
      feed_forward_norm_(context, width),
      feed_forward_(context, width, scale, random) {}

template <class Real>
Tensor<Real> Block<Real>::forward(const Context& context, const Tensor<Real>& input, std::size_t sequences,
                                  Saved& saved) const {
  Tensor<Real> branch = attention_norm_.forward(context, input, saved.attention_norm);
  branch = attention_.forward(context, branch, sequences, saved.attention);
  const Tensor<Real> middle = add(context, input, branch);
  branch = feed_forward_norm_.forward(context, middle, saved.feed_forward_norm);
  branch = feed_forward_.forward(context, branch, saved.feed_forward);
  return add(context, middle, branch);
}

template <class Real>
Tensor<Real> Block<Real>::backward(const Context& context, Tensor<Real> gradient, Saved saved) {
  // A sum hands its gradient to both of its terms; the branch's comes back to be added.
  Tensor<Real> branch = feed_forward_.backward(context, gradient, std::move(saved.feed_forward));
  branch = feed_forward_norm_.backward(context, branch, std::move(saved.feed_forward_norm));
  gradient = add(context, gradient, branch);
  branch = attention_.backward(context, gradient, std::move(saved.attention));
  branch = attention_norm_.backward(context, branch, std::move(saved.attention_norm));
  return add(context, gradient, branch);
}

template <class Real>
void Block<Real>::append_parameters(std::vector<Parameter<Real>*>& parameters) {
  attention_norm_.append_parameters(parameters);
  attention_.append_parameters(parameters);
  feed_forward_norm_.append_parameters(parameters);
  feed_forward_.append_parameters(parameters);
}

#define INSTANTIATE(Real)                                                                               \
  template Parameter<Real> normal_parameter(const Context&, std::size_t, std::size_t, double, Random&); \
  template Parameter<Real> constant_parameter(const Context&, std::size_t, Real);                       \
  template class Linear<Real>;                                                                          \
  template class LayerNorm<Real>;                                                                       \
  template class Attention<Real>;                                                                       \
  template class FeedForward<Real>;                                                                     \
  template class Block<Real>

INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace cistern::demo
