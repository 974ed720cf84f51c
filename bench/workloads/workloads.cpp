#include <array>

#include "bench/workloads/generators.h"
#include "bench/workloads/workload.h"

namespace cistern {
namespace {

constexpr std::array kWorkloads = {
    Workload{"gpt2-train", "GPT-2 medium, training in mixed precision, batches of varied length",
             generate_gpt2_training},
    Workload{"gpt2-train-checkpointed", "the same with activation checkpointing", generate_gpt2_checkpointed_training},
    Workload{"llama3-8b-serve", "Llama 3 8B, serving with continuous batching and a growing cache",
             generate_llama_serving},
    Workload{"detection-train", "Mask R-CNN with ResNet-50 and FPN, training on images of varied size",
             generate_detection_training},
    Workload{"dataframe-streams", "dataframe queries on four streams that hand tables over",
             generate_dataframe_streams},
    Workload{"small-operations", "a PPO agent: many operations on tiny tensors, some of which live long",
             generate_small_operations},
    Workload{"sawtooth", "adversarial: rising sizes between survivors that pin the holes", generate_sawtooth},
};

}  // namespace

std::span<const Workload> workloads() { return kWorkloads; }

const Workload* find_workload(std::string_view name) {
  for (const Workload& workload : kWorkloads) {
    if (name == workload.name) return &workload;
  }
  return nullptr;
}

}  // namespace cistern
