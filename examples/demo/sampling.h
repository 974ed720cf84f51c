#pragma once

// Text that the model writes.

#include "model.h"
#include "text.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace cistern::demo {

struct SamplingOptions {
  std::size_t length = 400;  // characters to write
  double temperature = 0.5;  // 0: always the likeliest character; 1: by the model's probabilities
  std::uint64_t seed = 1;    // the same seed writes the same text
};

// Continues `prompt`, which must not be empty; returns the prompt and what follows.
[[nodiscard]] std::string write_text(const Context& context, const Transformer<float>& model,
                                     const Vocabulary& vocabulary, const std::string& prompt,
                                     const SamplingOptions& options);

}  // namespace cistern::demo
