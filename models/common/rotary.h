// The rotary position embedding as a module, for queries and for keys. No parameters.
#pragma once

#include "models/common/shapes.h"
#include "nn/module.h"

namespace titan::models {

// x [B, T, H, E] and factors complex64 [>= T, E / 2] (nn/ops/rope.h), one row per token -> x rotated, in its dtype.
class Rotary : public nn::Module {
 public:
  explicit Rotary(RotaryPairs pairs) : pairs_(pairs) {}
  at::Tensor forward(const nn::Tensors& inputs) override;

 private:
  RotaryPairs pairs_;
};

}  // namespace titan::models
