#include "nn/lora_linear.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"
#include "facts/adapter_names.h"
#include "nn/init.h"

namespace titan::nn {

LoraLinear::LoraLinear(std::int64_t in_features, std::int64_t out_features, bool has_bias, LoraOptions options)
    : Linear(in_features, out_features, has_bias), options_(options) {
  TITAN_CHECK(options.rank >= 1, "an adapter of rank " + std::to_string(options.rank));
  param(kLoraA, lora_A, {options.rank, in_features});
  param(kLoraB, lora_B, {out_features, options.rank});
}

at::Tensor LoraLinear::forward(const Tensors& inputs) {
  const bool drops = training() && options_.dropout > 0;
  const at::Tensor x = drops ? at::dropout(inputs[0], options_.dropout, /*train=*/true) : inputs[0];
  return at::add(Linear::forward(inputs), at::linear(at::linear(x, lora_A), lora_B), options_.scale);
}

void draw_adapters(Module& model, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  CounterInitializer initializer(seed);
  for (const auto& parameter : model.named_parameters()) {
    if (!dynamic_cast<LoraLinear*>(parameter.module)) continue;
    if (parameter.parameter->name == kLoraB) initializer.zeros(parameter);
    if (parameter.parameter->name != kLoraA) continue;
    const double bound = 1 / std::sqrt(static_cast<double>(parameter.spec().global_shape[1]));
    initializer.uniform(parameter, -bound, bound);
  }
}

}  // namespace titan::nn
