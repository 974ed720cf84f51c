#include "examples/demo/model.h"
#include "gradient_check.h"

#include <cistern/stats.h>

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace cistern::demo {
namespace {

constexpr Token kVocabulary = 7;

ModelShape small_shape() {
  ModelShape shape;
  shape.vocabulary = kVocabulary;
  shape.context = 5;
  shape.width = 8;
  shape.heads = 2;
  shape.layers = 2;
  return shape;
}

TEST(Transformer, GradientsOfEveryParameterMatchFiniteDifferences) {
  GradientCheck check;
  Transformer<double> model(check.context(), small_shape(), 3);
  const Tensor<Token> tokens = check.random_tokens(3, 5, kVocabulary), targets = check.random_tokens(3, 5, kVocabulary);
  static_cast<void>(model.loss_and_gradients(tokens, targets));
  const auto scalar = [&] { return download(check.context(), model.loss(tokens, targets)).front(); };
  const auto parameters = model.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check.expect_gradient("parameter " + std::to_string(i), parameters[i]->value, parameters[i]->gradient, scalar, 12);
  }
}

TEST(Transformer, TrainingAndEvaluationAgreeOnTheLoss) {
  GradientCheck check;
  Transformer<double> model(check.context(), small_shape(), 3);
  const Tensor<Token> tokens = check.random_tokens(2, 4, kVocabulary), targets = check.random_tokens(2, 4, kVocabulary);
  EXPECT_EQ(download(check.context(), model.loss_and_gradients(tokens, targets)),
            download(check.context(), model.loss(tokens, targets)));
}

TEST(Transformer, NoPositionSeesALaterOne) {
  const Context context;
  const Transformer<double> model(context, small_shape(), 3);
  const auto logits = [&](const std::vector<Token>& tokens) {
    return download(context, model.logits(upload(context, tokens, 1, tokens.size())));
  };
  const std::vector<double> before = logits({0, 1, 2, 3, 4}), after = logits({0, 1, 6, 3, 4});
  for (std::size_t position = 0; position < 5; ++position) {
    double difference = 0.0;
    for (std::size_t j = 0; j < kVocabulary; ++j) {
      difference += std::abs(before[position * kVocabulary + j] - after[position * kVocabulary + j]);
    }
    if (position < 2) {
      EXPECT_EQ(difference, 0.0) << "position " << position;
    } else {
      EXPECT_GT(difference, 1e-6) << "position " << position;
    }
  }
}

TEST(Transformer, SequencesOfABatchDoNotSeeEachOther) {
  const Context context;
  const Transformer<double> model(context, small_shape(), 3);
  const std::vector<Token> both{0, 1, 2, 3, 4, 6, 5, 4, 3, 2};
  const std::vector<double> together = download(context, model.logits(upload(context, both, 2, 5)));
  const std::vector<Token> second(both.begin() + 5, both.end());
  const std::vector<double> alone = download(context, model.logits(upload(context, second, 1, 5)));
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[alone.size() + i], alone[i], 1e-12);
}

TEST(Transformer, TheSameSeedGivesTheSameWeights) {
  const Context context;
  const Tensor<Token> tokens = upload(context, std::vector<Token>{1, 2, 3}, 1, 3);
  const auto logits = [&](std::uint64_t seed) {
    return download(context, Transformer<float>(context, small_shape(), seed).logits(tokens));
  };
  EXPECT_EQ(logits(3), logits(3));
  EXPECT_NE(logits(3), logits(4));
}

TEST(Transformer, RefusesSequencesLongerThanItsContext) {
  const Context context;
  const Transformer<float> model(context, small_shape(), 3);
  const Tensor<Token> tokens = upload(context, std::vector<Token>(6, 0), 1, 6);
  EXPECT_THROW(static_cast<void>(model.logits(tokens)), std::invalid_argument);
}

TEST(Transformer, RefusesAWidthThatItsHeadsCannotShare) {
  const Context context;
  ModelShape shape = small_shape();
  shape.heads = 3;
  EXPECT_THROW(Transformer<float>(context, shape, 1), std::invalid_argument);
  EXPECT_EQ(memory_allocated(), 0U);
}

TEST(Transformer, TheBackwardPassLeavesOnlyGradientsAndTheLoss) {
  GradientCheck check;
  Transformer<float> model(check.context(), small_shape(), 3);
  const Tensor<Token> tokens = check.random_tokens(64, 5, kVocabulary),
                      targets = check.random_tokens(64, 5, kVocabulary);
  const std::size_t before = memory_allocated();
  const Tensor<float> loss = model.loss_and_gradients(tokens, targets);
  std::size_t gradients = 0;
  for (const Parameter<float>* parameter : model.parameters()) {
    gradients += (parameter->gradient.size() * sizeof(float) + 511) / 512 * 512;
  }
  EXPECT_EQ(memory_allocated(), before + gradients + 512) << "more than the gradients and the loss is left";
  model.drop_gradients();
  EXPECT_EQ(memory_allocated(), before + 512);
}

TEST(Transformer, LeavesNothingAllocated) {
  {
    const Context context;
    Transformer<float> model(context, small_shape(), 3);
    const Tensor<Token> tokens = upload(context, std::vector<Token>(10, 1), 2, 5);
    static_cast<void>(model.loss_and_gradients(tokens, tokens));
    EXPECT_GT(memory_allocated(), 0U);
  }
  EXPECT_EQ(memory_allocated(), 0U);
}

}  // namespace
}  // namespace cistern::demo
