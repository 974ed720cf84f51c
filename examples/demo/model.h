#pragma once

// A character-level transformer: it reads characters and predicts, at each place, the next one.
//
// Instantiated for float and double. Not thread-safe. The context must outlive the model.

#include "layers.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern::demo {

struct ModelShape {
  std::size_t vocabulary = 0;  // number of different characters
  std::size_t context = 32;    // characters that a prediction can see
  std::size_t width = 64;
  std::size_t heads = 4;
  std::size_t layers = 2;
};

template <class Real>
class Transformer {
 public:
  // The same seed gives the same first weights.
  Transformer(const Context& context, const ModelShape& shape, std::uint64_t seed);

  // The logits of the character after each of `tokens`, which holds one sequence a row, of at most
  // `shape().context` characters. Keeps no activation.
  [[nodiscard]] Tensor<Real> logits(const Tensor<Token>& tokens) const;
  // The mean loss, in nats a character, of `targets` after `tokens`. Keeps no activation.
  [[nodiscard]] Tensor<Real> loss(const Tensor<Token>& tokens, const Tensor<Token>& targets) const;
  // The same, and the gradients of all parameters. Where memory runs out in the forward pass,
  // all is as before; in the backward pass, some gradients are of this call.
  Tensor<Real> loss_and_gradients(const Tensor<Token>& tokens, const Tensor<Token>& targets);
  void drop_gradients();

  [[nodiscard]] const ModelShape& shape() const noexcept { return shape_; }
  // Valid while the model is; always in the same order.
  [[nodiscard]] std::vector<Parameter<Real>*> parameters();
  [[nodiscard]] std::size_t parameter_count();

 private:
  struct Saved {
    std::vector<typename Block<Real>::Saved> blocks;
    typename LayerNorm<Real>::Saved norm;
    typename Linear<Real>::Saved head;
  };
  Tensor<Real> forward(const Tensor<Token>& tokens, Saved* saved) const;
  void backward(const Tensor<Token>& tokens, Tensor<Real> gradient, Saved saved);

  const Context& context_;
  ModelShape shape_;
  Random random_;
  Parameter<Real> characters_, positions_;
  std::vector<Block<Real>> blocks_;
  LayerNorm<Real> norm_;
  Linear<Real> head_;
};

}  // namespace cistern::demo
