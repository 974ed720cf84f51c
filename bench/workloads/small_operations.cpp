// Many small operations: an agent that learns by proximal policy optimisation.
//
// Shapes: Schulman et al., "Proximal Policy Optimization Algorithms" (2017), its continuous
// control: policy and value networks of two hidden layers of 64, rollouts of 2048 steps, 10
// epochs of batches of 64; observations of 17 and actions of 6 values (the HalfCheetah task of
// Todorov et al., "MuJoCo", 2012). Float32, one allocation an operation, as an eager framework
// makes them. Ours: episodes end after 100 to 1000 steps; two iterations.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/workloads/generators.h"
#include "bench/workloads/random.h"
#include "bench/workloads/tensor.h"

namespace cistern {
namespace {

constexpr std::uint64_t kObservation = 17, kAction = 6, kHidden = 64;
constexpr std::uint64_t kRollout = 2048, kBatch = 64, kEpochs = 10;
constexpr std::uint64_t kFp32 = 4, kInt64 = 8;
constexpr int kIterations = 2;

class PpoAgent {
 public:
  PpoAgent(std::uint64_t seed, TraceSink& sink) : random_(seed), sink_(sink) {
    for (const std::uint64_t outputs : {kAction, std::uint64_t{1}}) {
      for (const std::uint64_t count :
           {kObservation * kHidden, kHidden, kHidden * kHidden, kHidden, kHidden * outputs, outputs}) {
        weights_.push_back(fp32(count));
      }
    }
    weights_.push_back(fp32(kAction));
    for (const Tensor& weight : weights_) {
      moments_.emplace_back(sink_, weight.bytes());
      moments_.emplace_back(sink_, weight.bytes());
    }
  }

  void iterate() {
    std::vector<Tensor> rollout = collect();
    const Tensor observations = fp32(kRollout * kObservation), actions = fp32(kRollout * kAction);
    const Tensor log_probabilities = fp32(kRollout), returns = fp32(kRollout), advantages = fp32(kRollout);
    rollout.clear();
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const Tensor order(sink_, kRollout * kInt64);
      for (std::uint64_t batch = 0; batch < kRollout / kBatch; ++batch) learn();
      sink_.step();
    }
  }

 private:
  Tensor fp32(std::uint64_t count) { return {sink_, count * kFp32}; }

  // The activations of one network; what is temporary is freed at once.
  std::vector<Tensor> forward(std::uint64_t rows, std::uint64_t outputs) {
    std::vector<Tensor> kept;
    for (int layer = 0; layer < 2; ++layer) {
      const Tensor sum = fp32(rows * kHidden);
      kept.push_back(fp32(rows * kHidden));
    }
    kept.push_back(fp32(rows * outputs));
    return kept;
  }

  // One rollout: what each step leaves behind, and a few longer tensors for each episode.
  std::vector<Tensor> collect() {
    std::vector<Tensor> kept;
    std::uint64_t episode = 0, last = random_.between(100, 1000);
    for (std::uint64_t step = 0; step < kRollout; ++step) {
      kept.push_back(fp32(kObservation));
      const std::vector<Tensor> policy = forward(1, kAction);
      std::vector<Tensor> value = forward(1, 1);
      const Tensor noise = fp32(kAction), deviation = fp32(kAction);
      kept.push_back(fp32(kAction));
      kept.push_back(fp32(1));
      kept.push_back(std::move(value.back()));
      if (++episode < last) continue;
      const Tensor rewards = fp32(episode), discounted = fp32(episode);
      kept.push_back(fp32(episode));
      episode = 0;
      last = random_.between(100, 1000);
    }
    return kept;
  }

  void backward(std::vector<Tensor> kept, std::uint64_t outputs, std::vector<Tensor>& gradients) {
    Tensor gradient = fp32(kBatch * outputs);
    const std::uint64_t inputs[] = {kObservation, kHidden, kHidden}, widths[] = {kHidden, kHidden, outputs};
    for (std::size_t layer = kept.size(); layer-- > 0;) {
      gradients.push_back(fp32(inputs[layer] * widths[layer]));
      gradients.push_back(fp32(widths[layer]));
      gradient = fp32(kBatch * inputs[layer]);
      if (layer > 0) gradient = fp32(kBatch * inputs[layer]);  // through the activation
      kept.pop_back();
    }
  }

  void learn() {
    const Tensor rows(sink_, kBatch * kInt64), observations = fp32(kBatch * kObservation);
    const Tensor actions = fp32(kBatch * kAction), old = fp32(kBatch), advantages = fp32(kBatch);
    std::vector<Tensor> policy = forward(kBatch, kAction), value = forward(kBatch, 1);
    Tensor ratio = fp32(kBatch * kAction);
    for (int operation = 0; operation < 6; ++operation) ratio = fp32(kBatch);
    const Tensor clipped = fp32(kBatch), smaller = fp32(kBatch), loss = fp32(1);
    std::vector<Tensor> gradients;
    backward(std::move(policy), kAction, gradients);
    backward(std::move(value), 1, gradients);
    gradients.push_back(fp32(kAction));
    for (const Tensor& gradient : gradients) {
      const Tensor root(sink_, gradient.bytes());
      const Tensor change(sink_, gradient.bytes());
    }
  }

  Random random_;
  TraceSink& sink_;
  std::vector<Tensor> weights_, moments_;
};

}  // namespace

void generate_small_operations(std::uint64_t seed, TraceSink& sink) {
  sink.comment("cistern workload small-operations, seed " + std::to_string(seed) + ": generated, Apache-2.0");
  sink.comment("proximal policy optimisation (Schulman et al., 2017): two networks with hidden layers of 64, float32");
  sink.comment("rollouts of 2048 steps, 10 epochs of batches of 64; 17 observations, 6 actions (HalfCheetah)");
  PpoAgent agent(seed, sink);
  for (int iteration = 0; iteration < kIterations; ++iteration) agent.iterate();
}

}  // namespace cistern
