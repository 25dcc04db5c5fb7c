// A linear layer with a low-rank adapter (LoRA, arXiv:2106.09685).
#pragma once

#include <cstdint>

#include "nn/layers.h"

namespace titan::nn {

struct LoraOptions {
  std::int64_t rank = 0;  // r, at least 1
  double scale = 1;       // alpha / r
  double dropout = 0;     // part of the adapter's input that training sets to zero, in [0, 1)
};

// y = x W^T (+ bias) + scale * (dropout(x) A^T) B^T. Besides Linear's parameters it has lora_A [r, in] and lora_B
// [out, r]. The product with W is an operator that checkpointed modules may keep; those with A and B are recomputed.
//
// Dropout draws from the generator of torch, as torch.nn.Dropout does.
class LoraLinear : public Linear {
 public:
  LoraLinear(std::int64_t in_features, std::int64_t out_features, bool has_bias, LoraOptions options);
  at::Tensor forward(const Tensors& inputs) override;
  const LoraOptions& options() const { return options_; }

  at::Tensor lora_A, lora_B;

 private:
  LoraOptions options_;
};

// Gives all adapters at and below `model` the values with which their training starts: A uniform in +-1 / sqrt(in), as
// PEFT and torch.nn.Linear draw it, and B zero, so that the model computes what it does without them. A follows from
// the seed, the layer's name and the element alone: not from the number of ranks, the device, or other weights.
void draw_adapters(Module& model, std::uint64_t seed);

}  // namespace titan::nn
