// Llama 3 8B, serving requests with continuous batching and a cache that grows.
//
// Shapes: Dubey et al., "The Llama 3 Herd of Models" (2024): 32 layers, width 4096, 32 heads
// and 8 key-value heads of 128, feed-forward width 14336, vocabulary 128256, all in bfloat16.
// Scheduling: iteration by iteration, as Yu et al., "Orca" (OSDI 2022): after each token,
// finished requests leave the batch and waiting ones enter it, whole prompts at once.
// Ours: each request keeps keys and values of each layer in tensors of their own, which grow
// by 16 tokens at a time (a new tensor, a copy, the old one freed); at most 32 requests and
// 65,536 cached tokens; there is always a request waiting. Prompts are 16 to 512 tokens long
// in 7 of 10 cases, up to 2048 in most others and up to 8192 in 1 of 20; answers 16 to 256.

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

constexpr std::uint64_t kLayers = 32, kWidth = 4096, kHeads = 32, kKeyValueWidth = 1024;  // 8 heads of 128
constexpr std::uint64_t kFeedForward = 14336, kVocabulary = 128256;
constexpr std::uint64_t kBf16 = 2, kFp32 = 4, kInt64 = 8;
constexpr std::uint64_t kCacheGrowth = 16, kMostRequests = 32, kMostCachedTokens = 65536;
constexpr int kIterations = 160;

struct Request {
  std::uint64_t prompt = 0, answer = 0;  // tokens, in all
  std::uint64_t cached = 0, produced = 0, capacity = 0;
  std::vector<Tensor> cache;  // keys and values of each layer in turn
};

class LlamaServer {
 public:
  LlamaServer(std::uint64_t seed, TraceSink& sink) : random_(seed), sink_(sink) {
    weights_.push_back(bf16(kVocabulary * kWidth));
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) {
      for (const std::uint64_t count :
           {kWidth, kWidth * kWidth, kKeyValueWidth * kWidth, kKeyValueWidth * kWidth, kWidth * kWidth, kWidth,
            kFeedForward * kWidth, kFeedForward * kWidth, kFeedForward * kWidth}) {
        weights_.push_back(bf16(count));
      }
    }
    weights_.push_back(bf16(kWidth));
    weights_.push_back(bf16(kVocabulary * kWidth));
    waiting_ = draw();
  }

  void iterate() {
    admit();
    std::uint64_t tokens = 0;
    for (const Request& request : running_) tokens += fresh_tokens(request);
    const Tensor positions(sink_, tokens * kInt64), starts(sink_, (running_.size() + 1) * kFp32);
    Tensor hidden(sink_, tokens * kWidth * kBf16);
    for (std::uint64_t layer = 0; layer < kLayers; ++layer) hidden = run_layer(layer, tokens, std::move(hidden));
    sample(std::move(hidden), tokens);
    finish();
    sink_.step();
  }

 private:
  Tensor bf16(std::uint64_t count) { return {sink_, count * kBf16}; }

  Request draw() {
    Request request;
    const std::uint64_t kind = random_.below(20);
    if (kind < 14) {
      request.prompt = random_.between(16, 512);
    } else {
      request.prompt = kind < 19 ? random_.between(512, 2048) : random_.between(2048, 8192);
    }
    request.answer = random_.between(16, 256);
    return request;
  }

  // At most one prompt enters an iteration, so that answers in progress do not stall.
  void admit() {
    std::uint64_t promised = waiting_.prompt + waiting_.answer;
    for (const Request& request : running_) promised += request.prompt + request.answer;
    if (running_.size() >= kMostRequests || promised > kMostCachedTokens) return;
    running_.push_back(std::move(waiting_));
    waiting_ = draw();
  }

  static std::uint64_t fresh_tokens(const Request& request) { return request.cached == 0 ? request.prompt : 1; }

  void grow_cache(Request& request, std::uint64_t layer) {
    const std::uint64_t needed = request.cached + fresh_tokens(request);
    if (needed <= request.capacity) return;
    const std::uint64_t bytes = round_up(needed, kCacheGrowth) * kKeyValueWidth * kBf16;
    if (request.cache.empty()) request.cache.resize(2 * kLayers);
    request.cache[2 * layer] = Tensor(sink_, bytes);
    request.cache[2 * layer + 1] = Tensor(sink_, bytes);
    if (layer == kLayers - 1) request.capacity = round_up(needed, kCacheGrowth);
  }

  Tensor run_layer(std::uint64_t layer, std::uint64_t tokens, Tensor hidden) {
    Tensor residual = attend(layer, tokens, hidden);
    hidden.reset();
    const Tensor normed = bf16(tokens * kWidth);
    Tensor gate = bf16(tokens * kFeedForward);
    const Tensor up = bf16(tokens * kFeedForward);
    gate = bf16(tokens * kFeedForward);  // through the activation
    gate = bf16(tokens * kFeedForward);  // times up
    const Tensor down = bf16(tokens * kWidth);
    gate.reset();
    return bf16(tokens * kWidth);
  }

  // Returns the residual with the attention's output added.
  Tensor attend(std::uint64_t layer, std::uint64_t tokens, const Tensor&) {
    Tensor normed = bf16(tokens * kWidth);
    Tensor q = bf16(tokens * kWidth), k = bf16(tokens * kKeyValueWidth);
    const Tensor v = bf16(tokens * kKeyValueWidth);
    normed.reset();
    q = bf16(tokens * kWidth);  // rotated
    k = bf16(tokens * kKeyValueWidth);
    for (Request& request : running_) grow_cache(request, layer);
    Tensor attention = bf16(tokens * kWidth);
    const Tensor log_sums(sink_, tokens * kHeads * kFp32);
    q.reset();
    k.reset();
    attention = bf16(tokens * kWidth);  // through the output product
    return bf16(tokens * kWidth);
  }

  void sample(Tensor hidden, std::uint64_t tokens) {
    const std::uint64_t requests = running_.size();
    Tensor last = bf16(tokens * kWidth);
    hidden.reset();
    last = bf16(requests * kWidth);
    Tensor logits = bf16(requests * kVocabulary);
    logits = Tensor(sink_, requests * kVocabulary * kFp32);
    const Tensor probabilities(sink_, requests * kVocabulary * kFp32);
    logits.reset();
    const Tensor chosen(sink_, requests * kInt64);
  }

  void finish() {
    for (Request& request : running_) {
      request.cached += fresh_tokens(request);
      ++request.produced;
    }
    std::erase_if(running_, [](const Request& request) { return request.produced >= request.answer; });
  }

  Random random_;
  TraceSink& sink_;
  std::vector<Tensor> weights_;
  std::vector<Request> running_;
  Request waiting_;
};

}  // namespace

void generate_llama_serving(std::uint64_t seed, TraceSink& sink) {
  sink.comment("cistern workload llama3-8b-serve, seed " + std::to_string(seed) + ": generated, Apache-2.0");
  sink.comment("Llama 3 8B (Dubey et al., 2024): 32 layers, width 4096, 8 key-value heads of 128, feed-forward 14336");
  sink.comment("continuous batching (Yu et al., Orca, 2022) of at most 32 requests and 65,536 cached tokens");
  sink.comment("each request's cache grows by 16 tokens at a time; prompts of 16 to 8192 tokens, answers of 16 to 256");
  LlamaServer server(seed, sink);
  for (int iteration = 0; iteration < kIterations; ++iteration) server.iterate();
}

}  // namespace cistern
