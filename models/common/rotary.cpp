#include "models/common/rotary.h"

#include "nn/ops/fused_ops.h"

namespace titan::models {

at::Tensor Rotary::forward(const nn::Tensors& inputs) {
  return pairs_ == RotaryPairs::kNeighbors ? nn::apply_rotary_emb(inputs[0], inputs[1])
                                           : nn::apply_rotary_emb_halves(inputs[0], inputs[1]);
}

}  // namespace titan::models
