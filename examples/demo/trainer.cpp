#include "trainer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace cistern::demo {

double learning_rate_at(std::size_t step, const TrainingOptions& options) {
  constexpr double kLastShare = 0.05;
  if (step < options.warm_up_steps) {
    return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(options.warm_up_steps);
  }
  const std::size_t falling = std::max<std::size_t>(1, options.steps - std::min(options.steps, options.warm_up_steps));
  const double done = std::min(1.0, static_cast<double>(step - options.warm_up_steps) / static_cast<double>(falling));
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return options.learning_rate * (kLastShare + (1.0 - kLastShare) * share);
}

Trainer::Trainer(const Context& context, const std::vector<Token>& training, const ModelShape& shape,
                 const TrainingOptions& options)
    : context_(context),
      options_(options),
      model_(context, shape, options.seed),
      optimizer_(context, model_.parameters()),
      loader_(context, training, options.sequences, shape.context, options.seed) {}

double Trainer::step() { return train_on(*loader_.next()); }

double Trainer::step(std::size_t sequences) { return train_on(*loader_.draw(sequences)); }

double Trainer::train_on(BatchCopy& copy) {
  const Batch& batch = copy.use_on_compute();
  const Tensor<float> loss = model_.loss_and_gradients(batch.tokens, batch.targets);
  optimizer_.step(learning_rate_at(steps_done_, options_));
  model_.drop_gradients();
  ++steps_done_;
  if (context_.trace() != nullptr) context_.trace()->end_step();
  return static_cast<double>(download(context_, loss).front());
}

double Trainer::mean_loss(const std::vector<Token>& text) const {
  if (text.size() < 2) throw std::invalid_argument("mean_loss: a text of less than two characters predicts nothing");
  const std::size_t length = model_.shape().context;
  double sum = 0.0;
  const auto add = [&](const std::vector<std::size_t>& starts, std::size_t window) {
    BatchCopy copy(context_, text, starts, window);
    const Batch& batch = copy.use_on_compute();
    const Tensor<float> loss = model_.loss(batch.tokens, batch.targets);
    sum += static_cast<double>(download(context_, loss).front()) * static_cast<double>(starts.size() * window);
  };
  const std::size_t predictions = text.size() - 1;
  std::vector<std::size_t> starts;
  for (std::size_t start = 0; start + length <= predictions; start += length) {
    starts.push_back(start);
    if (starts.size() == options_.sequences) {
      add(starts, length);
      starts.clear();
    }
  }
  if (!starts.empty()) add(starts, length);
  if (const std::size_t rest = predictions % length; rest != 0) add({predictions - rest}, rest);
  return sum / static_cast<double>(predictions);
}

}  // namespace cistern::demo
