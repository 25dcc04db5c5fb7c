// Grouped-query attention with rotary embeddings, as most decoders have it.
//
// B rows, T tokens, D width, H query heads, K key/value heads, E head dim.
#pragma once

#include <cstdint>
#include <memory>

#include "models/common/rotary.h"
#include "models/common/shapes.h"
#include "nn/attention_core.h"
#include "nn/layers.h"

namespace titan::models {

// Children: q_norm and k_norm [E] if the shape has them, wq [H * E, D], wk and wv [K * E, D], with biases if the shape
// has them, wo [D, H * E], and rotary (if the block rotates) and inner_attention without parameters. forward() takes
// the number of heads from the weights: if the heads are split, it works on those of this rank.
class Attention : public nn::Module {
 public:
  explicit Attention(const AttentionShape& shape);
  // x [B, T, D], rotary factors complex64 [>= T, E / 2], and with block-causal attention AttentionCore's document
  // inputs -> [B, T, D]
  at::Tensor forward(const nn::Tensors& inputs) override;

 private:
  // Returns [B, heads, T, E]: the heads of `projected`, normalized and rotated as the shape says.
  at::Tensor heads(const at::Tensor& projected, const std::shared_ptr<nn::RMSNorm>& norm, const at::Tensor& factors);

  std::int64_t head_dim_;
  std::shared_ptr<nn::RMSNorm> q_norm_, k_norm_;  // null if queries and keys are not normalized
  std::shared_ptr<nn::Linear> wq_, wk_, wv_, wo_;
  std::shared_ptr<Rotary> rotary_;  // null if the block does not rotate
  std::shared_ptr<nn::AttentionCore> inner_attention_;
};

}  // namespace titan::models
