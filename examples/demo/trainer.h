#pragma once

// Training: batches, steps of the optimiser, and the loss on text that is not learnt from.
//
// Not thread-safe. The context and the training text must outlive it.

#include "adam.h"
#include "batches.h"
#include "model.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cistern::demo {

struct TrainingOptions {
  std::size_t steps = 500;        // that the learning rate's course is laid out for
  std::size_t sequences = 40;     // in a batch
  double learning_rate = 1.2e-2;  // at its highest
  std::size_t warm_up_steps = 80;
  std::uint64_t seed = 1;
};

// Rises evenly during the warm-up, then falls along a cosine to a twentieth at the last step.
[[nodiscard]] double learning_rate_at(std::size_t step, const TrainingOptions& options);

class Trainer {
 public:
  Trainer(const Context& context, const std::vector<Token>& training, const ModelShape& shape,
          const TrainingOptions& options);

  // One step on the next batch: copy, forward, backward, Adam; the gradients are freed. Returns
  // the batch's loss, in nats a character, and so waits for the device. Throws OutOfMemoryError;
  // if the forward pass did, no parameter has changed.
  double step();
  // The same on a batch of so many sequences.
  double step(std::size_t sequences);

  // The mean loss of each character of `text` but the first, each seeing those before it in its
  // window of the model's context.
  [[nodiscard]] double mean_loss(const std::vector<Token>& text) const;

  [[nodiscard]] const Transformer<float>& model() const noexcept { return model_; }
  [[nodiscard]] std::size_t parameter_count() { return model_.parameter_count(); }

 private:
  double train_on(BatchCopy& copy);

  const Context& context_;
  TrainingOptions options_;
  Transformer<float> model_;
  Adam<float> optimizer_;
  BatchLoader loader_;
  std::size_t steps_done_ = 0;
};

}  // namespace cistern::demo
