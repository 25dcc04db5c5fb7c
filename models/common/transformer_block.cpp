#include "models/common/transformer_block.h"

#include <ATen/ATen.h>

#include <utility>

#include "nn/ops/fused_ops.h"

namespace titan::models {

FeedForward::FeedForward(std::int64_t dim, std::int64_t hidden_dim) {
  child("w1", w1_, std::make_shared<nn::Linear>(dim, hidden_dim));
  child("w2", w2_, std::make_shared<nn::Linear>(hidden_dim, dim));
  child("w3", w3_, std::make_shared<nn::Linear>(dim, hidden_dim));
}

at::Tensor FeedForward::forward(const nn::Tensors& inputs) {
  const auto& x = inputs[0];
  // Keep this order: selective recomputation counts matmuls.
  const auto gate = (*w1_)(x);
  const auto up = (*w3_)(x);
  return (*w2_)(nn::swiglu(gate, up));
}

TransformerBlock::TransformerBlock(const BlockShape& shape) {
  const std::int64_t dim = shape.attention.dim;
  child("attention", attention_, std::make_shared<Attention>(shape.attention));
  child("feed_forward", feed_forward_, std::make_shared<FeedForward>(dim, shape.hidden_dim));
  child("attention_norm", attention_norm_, std::make_shared<nn::RMSNorm>(dim, shape.norm_eps));
  child("ffn_norm", ffn_norm_, std::make_shared<nn::RMSNorm>(dim, shape.norm_eps));
}

at::Tensor TransformerBlock::forward(const nn::Tensors& inputs) {
  const auto& x = inputs[0];
  auto attention_inputs = inputs;
  attention_inputs[0] = (*attention_norm_)(x);
  const auto [h, normed] = ffn_norm_->forward_add(x, (*attention_)(std::move(attention_inputs)));
  return h + (*feed_forward_)(normed);
}

}  // namespace titan::models
