// The block of a pre-norm decoder with SwiGLU. B rows, T tokens, D width.
#pragma once

#include <cstdint>
#include <memory>

#include "models/common/attention.h"
#include "models/common/shapes.h"
#include "nn/layers.h"

namespace titan::models {

// Children: w1 and w3 [hidden_dim, D], w2 [D, hidden_dim].
class FeedForward : public nn::Module {
 public:
  FeedForward(std::int64_t dim, std::int64_t hidden_dim);
  at::Tensor forward(const nn::Tensors& inputs) override;  // [B, T, D] -> [B, T, D]

 private:
  std::shared_ptr<nn::Linear> w1_, w2_, w3_;
};

class TransformerBlock : public nn::Module {
 public:
  explicit TransformerBlock(const BlockShape& shape);
  at::Tensor forward(const nn::Tensors& inputs) override;  // x [B, T, D], Attention's other inputs -> [B, T, D]

 private:
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<FeedForward> feed_forward_;
  std::shared_ptr<nn::RMSNorm> attention_norm_, ffn_norm_;
};

}  // namespace titan::models
