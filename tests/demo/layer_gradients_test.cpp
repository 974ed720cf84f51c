#include "examples/demo/layers.h"
#include "gradient_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cistern::demo {
namespace {

class LayerGradients : public ::testing::Test {
 protected:
  // Checks the gradients of a layer's input and parameters, with `weights` for the gradient of its
  // result. `run` runs the layer on a tensor, for its result and what it saved.
  template <class Layer, class Run>
  void check(Layer& layer, const Tensor<double>& input, const Run& run, std::size_t samples = 1000) {
    auto [result, saved] = run(input);
    const Tensor<double> weights = check_.random_matrix(result.rows(), result.columns());
    const Tensor<double> gradient = layer.backward(context_, weights, std::move(saved));
    const auto scalar = [&] { return check_.inner(weights, run(input).first); };
    check_.expect_gradient("input", input, gradient, scalar, samples);
    std::vector<Parameter<double>*> parameters;
    layer.append_parameters(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      check_.expect_gradient("parameter " + std::to_string(i), parameters[i]->value, parameters[i]->gradient, scalar,
                             samples);
    }
  }

  GradientCheck check_;
  const Context& context_ = check_.context();
  Random random_{4};
};

TEST_F(LayerGradients, LinearMatchesFiniteDifferences) {
  Linear<double> layer(context_, 5, 7, 1.0, random_);
  check(layer, check_.random_matrix(6, 5), [&](const Tensor<double>& input) {
    Linear<double>::Saved saved;
    Tensor<double> result = layer.forward(context_, input, saved);
    return std::pair(result, saved);
  });
}

TEST_F(LayerGradients, LayerNormMatchesFiniteDifferences) {
  LayerNorm<double> layer(context_, 6);
  check(layer, check_.random_matrix(4, 6), [&](const Tensor<double>& input) {
    LayerNorm<double>::Saved saved;
    Tensor<double> result = layer.forward(context_, input, saved);
    return std::pair(result, saved);
  });
}

TEST_F(LayerGradients, AttentionMatchesFiniteDifferences) {
  Attention<double> layer(context_, 6, 2, 1.0, random_);
  check(layer, check_.random_matrix(10, 6), [&](const Tensor<double>& input) {
    Attention<double>::Saved saved;
    Tensor<double> result = layer.forward(context_, input, 2, saved);
    return std::pair(result, saved);
  });
}

TEST_F(LayerGradients, FeedForwardMatchesFiniteDifferences) {
  FeedForward<double> layer(context_, 4, 1.0, random_);
  check(layer, check_.random_matrix(3, 4), [&](const Tensor<double>& input) {
    FeedForward<double>::Saved saved;
    Tensor<double> result = layer.forward(context_, input, saved);
    return std::pair(result, saved);
  });
}

TEST_F(LayerGradients, BlockMatchesFiniteDifferences) {
  Block<double> layer(context_, 4, 2, 1.0, random_);
  const auto run = [&](const Tensor<double>& input) {
    Block<double>::Saved saved;
    Tensor<double> result = layer.forward(context_, input, 2, saved);
    return std::pair(result, saved);
  };
  check(layer, check_.random_matrix(6, 4), run, 20);
}

TEST_F(LayerGradients, GeluMatchesFiniteDifferences) {
  const Tensor<double> input = check_.random_matrix(3, 8), weights = check_.random_matrix(3, 8);
  const Tensor<double> gradient = gelu_backward(context_, weights, input);
  check_.expect_gradient("input", input, gradient, [&] { return check_.inner(weights, gelu(context_, input)); });
}

TEST_F(LayerGradients, EmbeddingMatchesFiniteDifferences) {
  const Tensor<Token> tokens = check_.random_tokens(3, 4, 5);  // 12 tokens of 5 kinds: some repeat
  const Tensor<double> table = check_.random_matrix(5, 3), positions = check_.random_matrix(6, 3);
  const Tensor<double> weights = check_.random_matrix(12, 3);
  const auto gradients = embed_backward(context_, weights, tokens, table, positions);
  const auto scalar = [&] { return check_.inner(weights, embed(context_, tokens, table, positions)); };
  check_.expect_gradient("table", table, gradients.table, scalar);
  check_.expect_gradient("positions", positions, gradients.positions, scalar);
}

TEST_F(LayerGradients, CrossEntropyMatchesFiniteDifferences) {
  const Tensor<double> logits = check_.random_matrix(4, 6);
  const Tensor<Token> targets = check_.random_tokens(4, 1, 6);
  const Tensor<double> probabilities = cross_entropy(context_, logits, targets).probabilities;
  const Tensor<double> gradient = cross_entropy_backward(context_, probabilities, targets);
  check_.expect_gradient("logits", logits, gradient,
                         [&] { return download(context_, cross_entropy(context_, logits, targets).loss).front(); });
}

}  // namespace
}  // namespace cistern::demo
