#include "models/common/attention.h"

#include <ATen/ATen.h>

#include <utility>

namespace titan::models {

Attention::Attention(const AttentionShape& shape) : head_dim_(shape.head_dim) {
  const auto q_dim = shape.n_heads * head_dim_, kv_dim = shape.n_kv_heads * head_dim_;
  if (shape.qk_norm_eps) {
    child("q_norm", q_norm_, std::make_shared<nn::RMSNorm>(head_dim_, *shape.qk_norm_eps));
    child("k_norm", k_norm_, std::make_shared<nn::RMSNorm>(head_dim_, *shape.qk_norm_eps));
  }
  child("wq", wq_, std::make_shared<nn::Linear>(shape.dim, q_dim, shape.qkv_bias));
  child("wk", wk_, std::make_shared<nn::Linear>(shape.dim, kv_dim, shape.qkv_bias));
  child("wv", wv_, std::make_shared<nn::Linear>(shape.dim, kv_dim, shape.qkv_bias));
  child("wo", wo_, std::make_shared<nn::Linear>(q_dim, shape.dim));
  if (shape.rotates) child("rotary", rotary_, std::make_shared<Rotary>(shape.rotary_pairs));
  child("inner_attention", inner_attention_, std::make_shared<nn::AttentionCore>());
}

at::Tensor Attention::heads(const at::Tensor& projected, const std::shared_ptr<nn::RMSNorm>& norm,
                            const at::Tensor& factors) {
  at::Tensor x = projected.unflatten(-1, {-1, head_dim_});  // [B, T, heads, E]
  if (norm) x = (*norm)(x);
  if (rotary_) x = (*rotary_)(x, factors);
  return x.transpose(1, 2);
}

at::Tensor Attention::forward(const nn::Tensors& inputs) {
  const auto& x = inputs[0];  // [B, T, D]
  nn::Tensors attended = {heads((*wq_)(x), q_norm_, inputs[1]), heads((*wk_)(x), k_norm_, inputs[1]),
                          (*wv_)(x).unflatten(-1, {-1, head_dim_}).transpose(1, 2)};
  attended.insert(attended.end(), inputs.begin() + 2, inputs.end());
  const auto out = (*inner_attention_)(std::move(attended));
  return (*wo_)(out.transpose(1, 2).contiguous().flatten(2));
}

}  // namespace titan::models
