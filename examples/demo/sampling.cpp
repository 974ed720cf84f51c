#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <stdexcept>
#include <vector>

namespace cistern::demo {
namespace {

// Draws from the softmax of the logits over the temperature.
Token draw(const std::vector<float>& logits, double temperature, Random& random) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0.0) return static_cast<Token>(std::distance(logits.begin(), likeliest));
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const float logit : logits) weights.push_back(std::exp(static_cast<double>(logit - *likeliest) / temperature));
  std::discrete_distribution<Token> distribution(weights.begin(), weights.end());
  return distribution(random);
}

// The logits after the last of `tokens`.
std::vector<float> last_logits(const Context& context, const Transformer<float>& model,
                               const std::vector<Token>& tokens) {
  const std::size_t length = std::min(tokens.size(), model.shape().context);
  const std::vector<Token> window(std::prev(tokens.end(), static_cast<std::ptrdiff_t>(length)), tokens.end());
  const std::vector<float> all = download(context, model.logits(upload(context, window, 1, length)));
  return {std::prev(all.end(), static_cast<std::ptrdiff_t>(model.shape().vocabulary)), all.end()};
}

}  // namespace

std::string write_text(const Context& context, const Transformer<float>& model, const Vocabulary& vocabulary,
                       const std::string& prompt, const SamplingOptions& options) {
  if (prompt.empty()) throw std::invalid_argument("write_text: the prompt is empty");
  std::vector<Token> tokens = vocabulary.encode(prompt);
  Random random(options.seed);
  for (std::size_t i = 0; i < options.length; ++i) {
    tokens.push_back(draw(last_logits(context, model, tokens), options.temperature, random));
  }
  return vocabulary.decode(tokens);
}

}  // namespace cistern::demo
