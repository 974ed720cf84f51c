// GPT-2 medium, training with and without activation checkpointing.
//
// Shapes: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), its
// second size: 24 layers, width 1024, 16 heads, context 1024, vocabulary 50257, the output
// layer tied to the embedding. Operations: those of an eager framework in mixed precision
// (bfloat16 products, float32 norms, softmax, residuals and weights) with attention written
// out, dropout, gradient clipping and Adam; checkpointing as in Chen et al., "Training Deep
// Nets with Sublinear Memory Cost" (2016): each layer keeps its input and runs forward again.
// Ours: 4 documents a batch of 128 to 1024 tokens, padded to the longest, in multiples of 8.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/workloads/generators.h"
#include "bench/workloads/random.h"
#include "bench/workloads/tensor.h"

namespace cistern {
namespace {

constexpr std::uint64_t kLayers = 24, kWidth = 1024, kHeads = 16, kContext = 1024, kVocabulary = 50257;
constexpr std::uint64_t kBatch = 4;
constexpr std::uint64_t kBf16 = 2, kFp32 = 4, kInt64 = 8, kMask = 1;
constexpr int kStepsKeeping = 40, kStepsCheckpointed = 32;

struct SavedNorm {
  Tensor input, mean, rstd;
};

// What a layer's backward pass needs of its forward pass.
struct SavedLayer {
  SavedNorm norm1;
  Tensor qkv_in, qkv_weight, q, k, v;
  Tensor softmax, attention_mask, attention;
  Tensor context, projection_weight, projection_mask;
  SavedNorm norm2;
  Tensor fc_in, fc_weight, fc, gelu, out_weight, out_mask;
};

class Gpt2 {
 public:
  Gpt2(std::uint64_t seed, TraceSink& sink) : random_(seed), sink_(sink) {
    const auto weight = [&](std::uint64_t count) { weights_.push_back(fp32(count)); };
    weight(kVocabulary * kWidth);
    weight(kContext * kWidth);
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      for (const std::uint64_t count : kLayerWeights) weight(count);
    }
    weight(kWidth);
    weight(kWidth);
  }

  void train_step(bool checkpointed) {
    choose_length();
    const Tensor tokens = tensor(tokens_, kInt64), targets = tensor(tokens_, kInt64);
    Tensor x = embed();
    std::vector<SavedLayer> saved(kLayers);
    std::vector<Tensor> inputs;
    for (SavedLayer& layer : saved) {
      if (checkpointed) {
        SavedLayer dropped;
        Tensor out = forward(x, dropped);
        inputs.push_back(std::move(dropped.norm1.input));
        x = std::move(out);
      } else {
        x = forward(x, layer);
      }
    }
    Tensor gradient = loss_and_its_gradient(std::move(x));
    for (std::uint64_t layer = kLayers; layer-- > 0;) {
      if (checkpointed) Tensor recomputed = forward(inputs[layer], saved[layer]);
      gradient = backward(saved[layer], std::move(gradient));
    }
    {
      const Tensor words = fp32(kVocabulary * kWidth);  // added to the output layer's: the weights are tied
      add_gradient(kContext * kWidth);
    }
    gradient.reset();
    clip_gradients();
    adam();
    gradients_.clear();
    sink_.step();
  }

 private:
  // Of one layer: two norms, qkv, projection, fc and out, each a weight and a bias.
  static constexpr std::uint64_t kLayerWeights[] = {
      kWidth, kWidth, 3 * kWidth* kWidth, 3 * kWidth, kWidth* kWidth,     kWidth,
      kWidth, kWidth, 4 * kWidth* kWidth, 4 * kWidth, 4 * kWidth* kWidth, kWidth};

  Tensor tensor(std::uint64_t count, std::uint64_t item_bytes) { return {sink_, count * item_bytes}; }
  Tensor bf16(std::uint64_t count) { return tensor(count, kBf16); }
  Tensor fp32(std::uint64_t count) { return tensor(count, kFp32); }

  void choose_length() {
    std::uint64_t longest = 0;
    for (std::uint64_t document = 0; document < kBatch; ++document) {
      longest = std::max(longest, random_.between(128, kContext));
    }
    const std::uint64_t length = round_up(longest, 8);
    tokens_ = kBatch * length;
    hidden_ = tokens_ * kWidth;
    scores_ = kBatch * kHeads * length * length;
  }

  Tensor embed() {
    const Tensor positions = fp32(hidden_ / kBatch), words = fp32(hidden_);
    Tensor sum = fp32(hidden_);
    const Tensor mask = tensor(hidden_, kMask);
    return fp32(hidden_);
  }

  // The norm's output, in bfloat16 for the product that follows.
  Tensor forward_norm(Tensor input, SavedNorm& saved) {
    const Tensor out = fp32(hidden_);
    saved = {std::move(input), fp32(tokens_), fp32(tokens_)};
    return bf16(hidden_);
  }

  // Product, dropout and residual sum: the end of each half of a layer.
  Tensor finish_half(Tensor product, Tensor& mask) {
    const Tensor dropped = bf16(hidden_);
    mask = tensor(hidden_, kMask);
    product.reset();
    return fp32(hidden_);
  }

  Tensor forward(Tensor& x, SavedLayer& s) {
    s.qkv_in = forward_norm(std::move(x), s.norm1);
    s.qkv_weight = bf16(3 * kWidth * kWidth);
    Tensor qkv = bf16(3 * hidden_);
    s.q = bf16(hidden_);
    s.k = bf16(hidden_);
    attend_scores(s);
    s.v = bf16(hidden_);
    qkv.reset();
    s.context = bf16(hidden_);
    s.context = bf16(hidden_);  // heads side by side again
    s.projection_weight = bf16(kWidth * kWidth);
    Tensor middle = finish_half(bf16(hidden_), s.projection_mask);

    s.fc_in = forward_norm(std::move(middle), s.norm2);
    s.fc_weight = bf16(4 * kWidth * kWidth);
    s.fc = bf16(4 * hidden_);
    s.gelu = bf16(4 * hidden_);
    s.out_weight = bf16(4 * kWidth * kWidth);
    return finish_half(bf16(hidden_), s.out_mask);
  }

  void attend_scores(SavedLayer& s) {
    Tensor scores = bf16(scores_);
    scores = bf16(scores_);  // scaled
    scores = bf16(scores_);  // masked
    scores = fp32(scores_);
    s.softmax = fp32(scores_);
    scores.reset();
    const Tensor dropped = fp32(scores_);
    s.attention_mask = tensor(scores_, kMask);
    s.attention = bf16(scores_);
  }

  // Gradients of a product's input (returned), weight and bias.
  Tensor backward_product(std::uint64_t input_count, std::uint64_t weight_count, std::uint64_t bias_count,
                          Tensor gradient, Tensor& input, Tensor& weight) {
    Tensor input_gradient = bf16(input_count);
    {
      const Tensor weight_gradient = bf16(weight_count);
      add_gradient(weight_count);
    }
    {
      const Tensor bias_gradient = bf16(bias_count);
      add_gradient(bias_count);
    }
    gradient.reset();
    input.reset();
    weight.reset();
    return input_gradient;
  }

  // Through the norm to the residual, with the residual's own gradient added.
  Tensor backward_norm(SavedNorm& norm, Tensor gradient, Tensor residual) {
    gradient = fp32(hidden_);
    Tensor through = fp32(hidden_);
    add_gradient(kWidth);
    add_gradient(kWidth);
    gradient.reset();
    norm = {};
    Tensor sum = fp32(hidden_);
    through.reset();
    residual.reset();
    return sum;
  }

  Tensor backward_dropout(Tensor& mask) {
    Tensor gradient = bf16(hidden_);
    gradient = bf16(hidden_);
    mask.reset();
    return gradient;
  }

  Tensor backward(SavedLayer& s, Tensor residual) {
    Tensor gradient =
        backward_product(4 * hidden_, 4 * kWidth * kWidth, kWidth, backward_dropout(s.out_mask), s.gelu, s.out_weight);
    gradient = bf16(4 * hidden_);
    s.fc.reset();
    gradient = backward_product(hidden_, 4 * kWidth * kWidth, 4 * kWidth, std::move(gradient), s.fc_in, s.fc_weight);
    residual = backward_norm(s.norm2, std::move(gradient), std::move(residual));

    gradient = backward_product(hidden_, kWidth * kWidth, kWidth, backward_dropout(s.projection_mask), s.context,
                                s.projection_weight);
    gradient = backward_attention(s, std::move(gradient));
    gradient = backward_product(hidden_, 3 * kWidth * kWidth, 3 * kWidth, std::move(gradient), s.qkv_in, s.qkv_weight);
    return backward_norm(s.norm1, std::move(gradient), std::move(residual));
  }

  Tensor backward_attention(SavedLayer& s, Tensor gradient) {
    Tensor scores = bf16(scores_);
    const Tensor v_gradient = bf16(hidden_);
    gradient.reset();
    s.attention.reset();
    s.v.reset();
    scores = fp32(scores_);
    scores = fp32(scores_);  // through the dropout
    s.attention_mask.reset();
    scores = fp32(scores_);  // through the softmax
    s.softmax.reset();
    scores = bf16(scores_);
    scores = bf16(scores_);  // through the mask
    scores = bf16(scores_);  // through the scale
    const Tensor q_gradient = bf16(hidden_), k_gradient = bf16(hidden_);
    scores.reset();
    s.q.reset();
    s.k.reset();
    return bf16(3 * hidden_);
  }

  Tensor loss_and_its_gradient(Tensor x) {
    SavedNorm norm;
    Tensor input = forward_norm(std::move(x), norm), weight = bf16(kVocabulary * kWidth);
    Tensor logits = bf16(tokens_ * kVocabulary);
    logits = fp32(tokens_ * kVocabulary);
    Tensor log_probabilities = fp32(tokens_ * kVocabulary);
    logits.reset();
    const Tensor loss = fp32(1), total_weight = fp32(1);
    Tensor gradient = fp32(tokens_ * kVocabulary);
    gradient = fp32(tokens_ * kVocabulary);
    log_probabilities.reset();
    gradient = bf16(tokens_ * kVocabulary);
    Tensor input_gradient = bf16(hidden_);
    {
      const Tensor weight_gradient = bf16(kVocabulary * kWidth);
      add_gradient(kVocabulary * kWidth);
    }
    gradient.reset();
    input.reset();
    weight.reset();
    return backward_norm(norm, std::move(input_gradient), Tensor());
  }

  void add_gradient(std::uint64_t count) { gradients_.push_back(fp32(count)); }

  void clip_gradients() {
    std::vector<Tensor> norms;
    for (std::size_t i = 0; i < gradients_.size(); ++i) norms.push_back(fp32(1));
    const Tensor stacked = fp32(gradients_.size()), norm = fp32(1), factor = fp32(1);
  }

  void adam() {
    if (moments_.empty()) {
      for (const Tensor& weight : weights_) {
        moments_.emplace_back(sink_, weight.bytes());
        moments_.emplace_back(sink_, weight.bytes());
      }
    }
    std::vector<Tensor> denominators;
    for (const Tensor& weight : weights_) denominators.emplace_back(sink_, weight.bytes());
  }

  Random random_;
  TraceSink& sink_;
  std::uint64_t tokens_ = 0, hidden_ = 0, scores_ = 0;  // values in a batch: tokens, a layer's input, its scores
  std::vector<Tensor> weights_, moments_, gradients_;
};

void generate(std::uint64_t seed, TraceSink& sink, bool checkpointed) {
  sink.comment("cistern workload " + std::string(checkpointed ? "gpt2-train-checkpointed" : "gpt2-train") + ", seed " +
               std::to_string(seed) + ": generated, Apache-2.0");
  sink.comment("GPT-2 medium (Radford et al., 2019): 24 layers, width 1024, 16 heads, context 1024, vocabulary 50257");
  sink.comment("mixed precision, attention written out, Adam; 4 documents of 128 to 1024 tokens a batch, padded");
  if (checkpointed) sink.comment("each layer keeps its input only and runs forward again (Chen et al., 2016)");
  Gpt2 model(seed, sink);
  const int steps = checkpointed ? kStepsCheckpointed : kStepsKeeping;
  for (int step = 0; step < steps; ++step) model.train_step(checkpointed);
}

}  // namespace

void generate_gpt2_training(std::uint64_t seed, TraceSink& sink) { generate(seed, sink, false); }
void generate_gpt2_checkpointed_training(std::uint64_t seed, TraceSink& sink) { generate(seed, sink, true); }

}  // namespace cistern
