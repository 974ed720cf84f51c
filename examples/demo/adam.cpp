#include "adam.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace cistern::demo {
namespace {

// Multiplications, a division and a square root for each number.
constexpr double kOperations = 20.0;

template <class Real>
Tensor<Real> zeros_like(const Context& context, const Tensor<Real>& model) {
  Tensor<Real> zeros(context, model.rows(), model.columns());
  fill_async(zeros.data(), 0, zeros.size() * sizeof(Real), context.compute());
  return zeros;
}

}  // namespace

template <class Real>
Adam<Real>::Adam(const Context& context, std::vector<Parameter<Real>*> parameters, const AdamOptions& options)
    : context_(context), parameters_(std::move(parameters)), options_(options) {
  for (const Parameter<Real>* parameter : parameters_) {
    moments_.push_back({zeros_like(context, parameter->value), zeros_like(context, parameter->value)});
  }
}

template <class Real>
void Adam<Real>::step(double learning_rate) {
  if (std::any_of(parameters_.begin(), parameters_.end(), [](const auto* each) { return each->gradient.empty(); })) {
    throw std::logic_error("adam: a parameter has no gradient; the backward pass comes first");
  }
  ++steps_;
  const double count = static_cast<double>(steps_);
  kernels::AdamStep<Real> step{static_cast<Real>(learning_rate),
                               static_cast<Real>(options_.first_decay),
                               static_cast<Real>(options_.second_decay),
                               static_cast<Real>(1.0 - std::pow(options_.first_decay, count)),
                               static_cast<Real>(1.0 - std::pow(options_.second_decay, count)),
                               static_cast<Real>(options_.epsilon),
                               Real{0}};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter<Real>& parameter = *parameters_[i];
    const Moments& moments = moments_[i];
    step.weight_decay = parameter.decays ? static_cast<Real>(options_.weight_decay) : Real{0};
    context_.launch(
        kOperations * static_cast<double>(parameter.value.size()),
        {parameter.gradient.range(), parameter.value.range(), moments.first.range(), moments.second.range()},
        {parameter.value.range(), moments.first.range(), moments.second.range()},
        [step, gradient = parameter.gradient.data(), size = parameter.value.size(), value = parameter.value.data(),
         first = moments.first.data(),
         second = moments.second.data()] { kernels::adam<Real>(step, gradient, size, value, first, second); });
  }
}

template class Adam<float>;
template class Adam<double>;

}  // namespace cistern::demo
