#include "examples/demo/trainer.h"
#include "examples/demo/sampling.h"

#include <cistern/allocator.h>
#include <cistern/error.h>
#include <cistern/stats.h>

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace cistern::demo {
namespace {

// A text in which each character follows from the two before it: aab aab aab ...
std::vector<Token> pattern(std::size_t length) {
  std::vector<Token> text(length);
  for (std::size_t i = 0; i < length; ++i) text[i] = i % 3 == 2 ? 1 : 0;
  return text;
}

ModelShape smallest_that_learns() {
  ModelShape shape;
  shape.vocabulary = 2;
  shape.context = 8;
  shape.width = 16;
  shape.heads = 2;
  shape.layers = 2;
  return shape;
}

TrainingOptions small_options() {
  TrainingOptions options;
  options.steps = 40;
  options.sequences = 4;
  options.warm_up_steps = 5;
  return options;
}

std::vector<double> losses(Trainer& trainer, std::size_t steps) {
  std::vector<double> result;
  for (std::size_t i = 0; i < steps; ++i) result.push_back(trainer.step());
  return result;
}

TEST(Trainer, LearnsWhatCountingCharactersCannot) {
  const Context context;
  const std::vector<Token> text = pattern(300);
  Trainer trainer(context, text, smallest_that_learns(), small_options());
  const double first = trainer.mean_loss(text);
  losses(trainer, 40);
  const double last = trainer.mean_loss(text);
  EXPECT_LT(last, first);
  EXPECT_LT(last, 0.5 * unigram_loss(text, text, 2));
  EXPECT_LT(last, 0.9 * bigram_loss(text, text, 2));
}

TEST(Trainer, TheSameSeedGivesTheSameRun) {
  const Context context;
  const std::vector<Token> text = pattern(300);
  const auto run = [&](std::uint64_t seed) {
    TrainingOptions options = small_options();
    options.seed = seed;
    Trainer trainer(context, text, smallest_that_learns(), options);
    return losses(trainer, 5);
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Trainer, TheMeanLossCountsEveryCharacterOnce) {
  const Context context;
  const std::vector<Token> text = pattern(300);
  Trainer trainer(context, text, smallest_that_learns(), small_options());
  // Windows of 8, 8, 8 and 3 predictions; the first 24 fill less than one batch.
  const std::vector<Token> part(text.begin(), text.begin() + 28);
  const auto loss_of = [&](std::size_t begin, std::size_t predictions) {
    const auto from = part.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(predictions);
    const auto tokens = upload(context, std::vector<Token>(from, from + count), 1, predictions);
    const auto targets = upload(context, std::vector<Token>(from + 1, from + count + 1), 1, predictions);
    const float loss = download(context, trainer.model().loss(tokens, targets)).front();
    return static_cast<double>(loss) * static_cast<double>(predictions);
  };
  const double expected = (loss_of(0, 8) + loss_of(8, 8) + loss_of(16, 8) + loss_of(24, 3)) / 27.0;
  EXPECT_NEAR(trainer.mean_loss(part), expected, 1e-5);
}

TEST(Trainer, ABatchThatDoesNotFitChangesNothing) {
  const Context context;
  const std::vector<Token> text = pattern(300);
  Trainer trainer(context, text, smallest_that_learns(), small_options());
  losses(trainer, 2);
  const double before = trainer.mean_loss(text);
  const std::size_t allocated = memory_allocated();
  const double fraction = memory_fraction();

  // 32 MiB of the device's 1 GiB; the first layer's output for this batch has 16 MiB, its norm as much again.
  set_options("oom_dump:off");
  set_memory_fraction(1.0 / 32.0);
  EXPECT_THROW(trainer.step(32768), OutOfMemoryError);
  set_memory_fraction(fraction);

  EXPECT_EQ(memory_allocated(), allocated);
  EXPECT_EQ(trainer.mean_loss(text), before);
  EXPECT_TRUE(std::isfinite(trainer.step()));
}

TEST(Trainer, LeavesNothingAllocated) {
  {
    const Context context;
    const std::vector<Token> text = pattern(300);
    Trainer trainer(context, text, smallest_that_learns(), small_options());
    losses(trainer, 3);
  }
  EXPECT_EQ(memory_allocated(), 0U);
}

TEST(LearningRate, RisesEvenlyAndFallsToATwentieth) {
  TrainingOptions options;
  options.steps = 100;
  options.warm_up_steps = 10;
  options.learning_rate = 1.0;
  EXPECT_NEAR(learning_rate_at(0, options), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate_at(9, options), 1.0, 1e-12);
  EXPECT_NEAR(learning_rate_at(55, options), 0.525, 1e-12);
  EXPECT_NEAR(learning_rate_at(100, options), 0.05, 1e-12);
  EXPECT_NEAR(learning_rate_at(1000, options), 0.05, 1e-12);
}

TEST(Sampling, WritesThePatternThatWasLearnt) {
  const Context context;
  const Corpus corpus{"aabaab", "b", ""};
  const Vocabulary vocabulary(corpus);
  const std::vector<Token> text = pattern(300);
  Trainer trainer(context, text, smallest_that_learns(), small_options());
  losses(trainer, 40);
  SamplingOptions options;
  options.length = 12;
  options.temperature = 0.0;
  EXPECT_EQ(write_text(context, trainer.model(), vocabulary, "aabaab", options), "aabaabaabaabaabaab");
}

}  // namespace
}  // namespace cistern::demo
