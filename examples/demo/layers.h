#pragma once

// The layers of the transformer. Each keeps its parameters; `forward` fills a `Saved` with what
// `backward` will need, and `backward` takes that `Saved` away, so that activations are freed
// one by one as the backward pass proceeds.
//
// Gradients are made by `backward` and replace what was there: each layer runs once a step.
// Instantiated for float and double. Not thread-safe.

#include "operations.h"

#include <cstdint>
#include <random>
#include <vector>

namespace cistern::demo {

template <class Real>
struct Parameter {
  Tensor<Real> value;
  Tensor<Real> gradient;  // empty until the backward pass made it
  bool decays = false;    // whether weight decay applies: to matrices, not to biases and gains
};

using Random = std::mt19937_64;

// A parameter of independent normal numbers.
template <class Real>
Parameter<Real> normal_parameter(const Context& context, std::size_t rows, std::size_t columns, double deviation,
                                 Random& random);
// A parameter of one row of equal numbers.
template <class Real>
Parameter<Real> constant_parameter(const Context& context, std::size_t columns, Real number);

template <class Real>
class Linear {
 public:
  using Saved = Tensor<Real>;  // the input

  // Weights of deviation scale / sqrt(inputs), biases of 0.
  Linear(const Context& context, std::size_t inputs, std::size_t outputs, double scale, Random& random);
  Tensor<Real> forward(const Context& context, const Tensor<Real>& input, Saved& saved) const;
  Tensor<Real> backward(const Context& context, const Tensor<Real>& gradient, Saved saved);
  void append_parameters(std::vector<Parameter<Real>*>& parameters);

 private:
  Parameter<Real> weight_, bias_;
};

template <class Real>
class LayerNorm {
 public:
  struct Saved {
    Tensor<Real> input, means, scales;
  };

  LayerNorm(const Context& context, std::size_t width);
  Tensor<Real> forward(const Context& context, const Tensor<Real>& input, Saved& saved) const;
  Tensor<Real> backward(const Context& context, const Tensor<Real>& gradient, Saved saved);
  void append_parameters(std::vector<Parameter<Real>*>& parameters);

 private:
  Parameter<Real> gain_, shift_;
};

// Causal attention of several heads, with its projections. `scale` is of the last one's weights,
// here and below.
template <class Real>
class Attention {
 public:
  struct Saved {
    typename Linear<Real>::Saved project;
    AttentionShape shape;
    Tensor<Real> qkv, weights;
    typename Linear<Real>::Saved join;
  };

  Attention(const Context& context, std::size_t width, std::size_t heads, double scale, Random& random);
  // `sequences` equally long sequences, one after the other.
  Tensor<Real> forward(const Context& context, const Tensor<Real>& input, std::size_t sequences, Saved& saved) const;
  Tensor<Real> backward(const Context& context, Tensor<Real> gradient, Saved saved);
  void append_parameters(std::vector<Parameter<Real>*>& parameters);

 private:
  std::size_t heads_;
  Linear<Real> project_;  // to queries, keys and values
  Linear<Real> join_;     // the heads' results
};

// The feed-forward part: four times as wide inside.
template <class Real>
class FeedForward {
 public:
  struct Saved {
    typename Linear<Real>::Saved widen;
    Tensor<Real> widened;
    typename Linear<Real>::Saved narrow;
  };

  FeedForward(const Context& context, std::size_t width, double scale, Random& random);
  Tensor<Real> forward(const Context& context, const Tensor<Real>& input, Saved& saved) const;
  Tensor<Real> backward(const Context& context, Tensor<Real> gradient, Saved saved);
  void append_parameters(std::vector<Parameter<Real>*>& parameters);

 private:
  Linear<Real> widen_, narrow_;
};

// One layer of the transformer: x + attention(norm(x)), then x + feed_forward(norm(x)).
template <class Real>
class Block {
 public:
  struct Saved {
    typename LayerNorm<Real>::Saved attention_norm, feed_forward_norm;
    typename Attention<Real>::Saved attention;
    typename FeedForward<Real>::Saved feed_forward;
  };

  Block(const Context& context, std::size_t width, std::size_t heads, double scale, Random& random);
  Tensor<Real> forward(const Context& context, const Tensor<Real>& input, std::size_t sequences, Saved& saved) const;
  Tensor<Real> backward(const Context& context, Tensor<Real> gradient, Saved saved);
  void append_parameters(std::vector<Parameter<Real>*>& parameters);

 private:
  LayerNorm<Real> attention_norm_;
  Attention<Real> attention_;
  LayerNorm<Real> feed_forward_norm_;
  FeedForward<Real> feed_forward_;
};

}  // namespace cistern::demo
