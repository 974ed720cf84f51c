#pragma once

// The Adam optimiser with decoupled weight decay (AdamW).

#include "layers.h"

#include <cstddef>
#include <vector>

namespace cistern::demo {

struct AdamOptions {
  double first_decay = 0.9;
  double second_decay = 0.99;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // times the learning rate, of the parameters that decay
};

// Instantiated for float and double. Not thread-safe. The context and the parameters must
// outlive it.
template <class Real>
class Adam {
 public:
  // Two moments, 0 at first, for each parameter.
  Adam(const Context& context, std::vector<Parameter<Real>*> parameters, const AdamOptions& options = {});
  // Queues one step for every parameter. Throws std::logic_error if one has no gradient.
  void step(double learning_rate);

 private:
  const Context& context_;
  std::vector<Parameter<Real>*> parameters_;
  AdamOptions options_;
  struct Moments {
    Tensor<Real> first, second;
  };
  std::vector<Moments> moments_;
  std::size_t steps_ = 0;
};

}  // namespace cistern::demo
