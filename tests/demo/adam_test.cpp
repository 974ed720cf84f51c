#include "examples/demo/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

namespace cistern::demo {
namespace {

TEST(Adam, TwoStepsMatchTheFormulasByHand) {
  const Context context;
  Parameter<double> parameter{upload(context, std::vector<double>{1.0, -2.0}, 1, 2),
                              upload(context, std::vector<double>{0.5, -0.25}, 1, 2), true};
  AdamOptions options;
  options.first_decay = 0.9;
  options.second_decay = 0.99;
  options.epsilon = 1e-8;
  options.weight_decay = 0.1;
  Adam<double> adam(context, {&parameter}, options);

  // After one step the corrected moments are the gradient and its square, so that the value moves
  // by the learning rate against the gradient's sign, and by the decay.
  adam.step(0.01);
  std::vector<double> values = download(context, parameter.value);
  const double first = 1.0 - 0.01 * (0.5 / (0.5 + 1e-8) + 0.1 * 1.0);
  EXPECT_NEAR(values[0], first, 1e-12);
  EXPECT_NEAR(values[1], -2.0 - 0.01 * (-0.25 / (0.25 + 1e-8) + 0.1 * -2.0), 1e-12);

  parameter.gradient = upload(context, std::vector<double>{1.0, 0.0}, 1, 2);
  adam.step(0.02);
  values = download(context, parameter.value);
  const double mean = (0.9 * 0.1 * 0.5 + 0.1 * 1.0) / (1.0 - 0.81);
  const double square = (0.99 * 0.01 * 0.25 + 0.01 * 1.0) / (1.0 - 0.9801);
  EXPECT_NEAR(values[0], first - 0.02 * (mean / (std::sqrt(square) + 1e-8) + 0.1 * first), 1e-12);
}

TEST(Adam, BiasesDoNotDecay) {
  const Context context;
  Parameter<double> bias{upload(context, std::vector<double>{3.0}, 1, 1),
                         upload(context, std::vector<double>{0.0}, 1, 1), false};
  Adam<double> adam(context, {&bias});
  adam.step(0.1);
  EXPECT_EQ(download(context, bias.value).front(), 3.0);
}

TEST(Adam, RefusesAStepWithoutGradients) {
  const Context context;
  Parameter<float> parameter{upload(context, std::vector<float>{3.0F}, 1, 1), {}, true};
  Adam<float> adam(context, {&parameter});
  EXPECT_THROW(adam.step(0.1), std::logic_error);
}

}  // namespace
}  // namespace cistern::demo
