#pragma once

// Training steps that do not come again as they were, the same for every allocator: of a transformer whose sequences
// have another length in each step, and of a network in which one size in a hundred changes.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/mixed_sizes.h"

namespace cistern {

// An allocation into a slot, or a free of what is in it.
struct StepOperation {
  std::uint32_t slot;
  std::size_t bytes;  // 0: a free
};

// Writes down what a step asks for.
class StepRecorder {
 public:
  using Slot = std::uint32_t;
  Slot allocate(double bytes) {
    if (spare_.empty()) spare_.push_back(slots_++);
    const Slot slot = spare_.back();
    spare_.pop_back();
    operations_.push_back({slot, static_cast<std::size_t>(bytes)});
    return slot;
  }
  void release(Slot slot) {
    operations_.push_back({slot, 0});
    spare_.push_back(slot);
  }
  [[nodiscard]] const std::vector<StepOperation>& operations() const { return operations_; }
  [[nodiscard]] std::size_t slots() const { return slots_; }

 private:
  std::vector<StepOperation> operations_;
  std::vector<Slot> spare_;
  Slot slots_ = 0;
};

// Forward and backward through 24 layers of width 1,024, in half precision, 8 sequences of so many tokens: what a layer
// keeps for its backward is freed there, the last first, between gradients that live for a part of it.
inline StepRecorder transformer_step(std::size_t tokens_each) {
  constexpr int kLayers = 24;
  constexpr double kSequences = 8;
  constexpr double kWidth = 1024;
  constexpr double kHalf = 2;
  constexpr double kFloat = 4;
  const double tokens = kSequences * static_cast<double>(tokens_each);
  const double hidden = tokens * kWidth * kHalf;
  StepRecorder step;
  std::vector<std::vector<StepRecorder::Slot>> kept(kLayers);
  for (auto& layer : kept) {
    const auto keep = [&](double bytes) { layer.push_back(step.allocate(bytes)); };
    for (const double bytes : {hidden, tokens * kFloat, tokens * kFloat}) keep(bytes);
    const auto projections = step.allocate(3 * hidden);
    for (int i = 0; i < 3; ++i) keep(hidden);
    step.release(projections);
    for (const double bytes : {hidden, kSequences * 16 * kFloat * static_cast<double>(tokens_each)}) keep(bytes);
    const auto attended = step.allocate(hidden);
    for (const double bytes : {hidden / 2, hidden}) keep(bytes);
    step.release(attended);
    for (const double bytes : {hidden, tokens * kFloat, tokens * kFloat, 4 * hidden, 4 * hidden}) keep(bytes);
    const auto output = step.allocate(hidden);
    for (const double bytes : {hidden / 2, hidden}) keep(bytes);
    step.release(output);
  }
  auto gradient = step.allocate(hidden);
  for (int layer = kLayers; layer-- > 0;) {
    std::vector<StepRecorder::Slot> weights;
    for (auto& slots = kept[static_cast<std::size_t>(layer)]; !slots.empty();) {
      const auto inner = step.allocate(slots.size() > 8 ? 4 * hidden : hidden);
      for (int i = 0; i < 3 && !slots.empty(); ++i) {
        step.release(slots.back());
        slots.pop_back();
      }
      if (slots.size() % 2 == 0) weights.push_back(step.allocate(kWidth * kWidth * kHalf));
      const auto next = step.allocate(hidden);
      step.release(inner);
      step.release(gradient);
      gradient = next;
    }
    for (const auto slot : weights) step.release(slot);
  }
  step.release(gradient);
  return step;
}

inline StepRecorder step_of_any_length(std::mt19937_64& random) {
  return transformer_step(64 + static_cast<std::size_t>(uniform_of(random) * 1984));
}

// 300 layers of which no two are alike, up to 8 MiB each, one request in a hundred up to 1 MiB larger.
inline StepRecorder step_with_some_sizes_changed(std::mt19937_64& random) {
  constexpr int kLayers = 300;
  std::mt19937_64 sizes(3);
  StepRecorder step;
  const auto some = [&](double most) {
    const double bytes = 512 + uniform_of(sizes) * most;
    return uniform_of(random) < 0.01 ? bytes + uniform_of(random) * 1048576 : bytes;
  };
  std::vector<StepRecorder::Slot> kept;
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto scratch = step.allocate(some(4194304));
    kept.push_back(step.allocate(some(8388608)));
    step.release(scratch);
  }
  auto gradient = step.allocate(some(8388608));
  for (; !kept.empty(); kept.pop_back()) {
    const auto next = step.allocate(some(8388608));
    const auto scratch = step.allocate(some(4194304));
    for (const auto slot : {gradient, scratch, kept.back()}) step.release(slot);
    gradient = next;
  }
  step.release(gradient);
  return step;
}

// Plays them on one allocator. Requires: `heap` outlives it.
template <class Heap>
class ChangingSteps {
 public:
  using Maker = StepRecorder (*)(std::mt19937_64& random);
  ChangingSteps(Heap& heap, Maker make) : heap_(heap), make_(make) {}

  // Makes the next steps, in no time that is measured.
  void prepare(int steps) {
    operations_.clear();
    for (; steps > 0; --steps) {
      const StepRecorder step = make_(random_);
      operations_.insert(operations_.end(), step.operations().begin(), step.operations().end());
      if (blocks_.size() < step.slots()) blocks_.resize(step.slots());
    }
  }
  void run() {
    for (const StepOperation& operation : operations_) {
      void*& block = blocks_[operation.slot];
      if (operation.bytes != 0)
        block = heap_.allocate(operation.bytes);
      else
        heap_.release(block);
    }
  }
  [[nodiscard]] std::size_t operations() const { return operations_.size(); }

 private:
  Heap& heap_;
  Maker make_;
  std::mt19937_64 random_{20261127};
  std::vector<StepOperation> operations_;
  std::vector<void*> blocks_;
};

}  // namespace cistern
