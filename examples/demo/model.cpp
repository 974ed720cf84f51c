#include "model.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace cistern::demo {
namespace {

// Of the characters' and positions' vectors: the size of weights in a layer as wide as they are.
double embedding_deviation(const ModelShape& shape) { return 1.0 / std::sqrt(static_cast<double>(shape.width)); }

// Weights that add to the residual stream start smaller, since two a layer add up there.
double residual_scale(const ModelShape& shape) { return 1.0 / std::sqrt(2.0 * static_cast<double>(shape.layers)); }

template <class Real>
std::vector<Block<Real>> make_blocks(const Context& context, const ModelShape& shape, Random& random) {
  std::vector<Block<Real>> blocks;
  for (std::size_t i = 0; i < shape.layers; ++i) {
    blocks.emplace_back(context, shape.width, shape.heads, residual_scale(shape), random);
  }
  return blocks;
}

}  // namespace

template <class Real>
Transformer<Real>::Transformer(const Context& context, const ModelShape& shape, std::uint64_t seed)
    : context_(context),
      shape_(shape),
      random_(seed),
      characters_(normal_parameter<Real>(context, shape.vocabulary, shape.width, embedding_deviation(shape), random_)),
      positions_(normal_parameter<Real>(context, shape.context, shape.width, embedding_deviation(shape), random_)),
      blocks_(make_blocks<Real>(context, shape, random_)),
      norm_(context, shape.width),
      head_(context, shape.width, shape.vocabulary, 1.0, random_) {}

template <class Real>
Tensor<Real> Transformer<Real>::forward(const Tensor<Token>& tokens, Saved* saved) const {
  if (tokens.empty() || tokens.columns() > shape_.context) {
    throw std::invalid_argument("transformer: sequences of " + std::to_string(tokens.columns()) +
                                " characters, expected 1 to " + std::to_string(shape_.context));
  }
  Tensor<Real> stream = embed(context_, tokens, characters_.value, positions_.value);
  if (saved != nullptr) saved->blocks.resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    // What is not wanted for a backward pass is freed as soon as the block is done with it.
    typename Block<Real>::Saved dropped;
    stream = blocks_[i].forward(context_, stream, tokens.rows(), saved != nullptr ? saved->blocks[i] : dropped);
  }
  Saved dropped;
  Saved& last = saved != nullptr ? *saved : dropped;
  stream = norm_.forward(context_, stream, last.norm);
  return head_.forward(context_, stream, last.head);
}

template <class Real>
void Transformer<Real>::backward(const Tensor<Token>& tokens, Tensor<Real> gradient, Saved saved) {
  gradient = head_.backward(context_, gradient, std::move(saved.head));
  gradient = norm_.backward(context_, gradient, std::move(saved.norm));
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    gradient = blocks_[i].backward(context_, std::move(gradient), std::move(saved.blocks[i]));
  }
  EmbedGradients<Real> gradients = embed_backward(context_, gradient, tokens, characters_.value, positions_.value);
  characters_.gradient = std::move(gradients.table);
  positions_.gradient = std::move(gradients.positions);
}

template <class Real>
Tensor<Real> Transformer<Real>::logits(const Tensor<Token>& tokens) const {
  return forward(tokens, nullptr);
}

template <class Real>
Tensor<Real> Transformer<Real>::loss(const Tensor<Token>& tokens, const Tensor<Token>& targets) const {
  return cross_entropy(context_, forward(tokens, nullptr), targets).loss;
}

template <class Real>
Tensor<Real> Transformer<Real>::loss_and_gradients(const Tensor<Token>& tokens, const Tensor<Token>& targets) {
  Saved saved;
  CrossEntropy<Real> result = cross_entropy(context_, forward(tokens, &saved), targets);
  Tensor<Real> gradient = cross_entropy_backward(context_, result.probabilities, targets);
  result.probabilities = {};
  backward(tokens, std::move(gradient), std::move(saved));
  return std::move(result.loss);
}

template <class Real>
void Transformer<Real>::drop_gradients() {
  for (Parameter<Real>* parameter : parameters()) parameter->gradient = {};
}

template <class Real>
std::vector<Parameter<Real>*> Transformer<Real>::parameters() {
  std::vector<Parameter<Real>*> parameters{&characters_, &positions_};
  for (Block<Real>& block : blocks_) block.append_parameters(parameters);
  norm_.append_parameters(parameters);
  head_.append_parameters(parameters);
  return parameters;
}

template <class Real>
std::size_t Transformer<Real>::parameter_count() {
  std::size_t count = 0;
  for (const Parameter<Real>* parameter : parameters()) count += parameter->value.size();
  return count;
}

template class Transformer<float>;
template class Transformer<double>;

}  // namespace cistern::demo
