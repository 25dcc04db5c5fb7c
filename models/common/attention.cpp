#include "models/common/attention.h"

#include <ATen/ATen.h>

#include "nn/ops/rope.h"

namespace titan::models {

Attention::Attention(const AttentionShape& shape) : head_dim_(shape.head_dim) {
  const auto q_dim = shape.n_heads * head_dim_, kv_dim = shape.n_kv_heads * head_dim_;
  child("wq", wq_, std::make_shared<nn::Linear>(shape.dim, q_dim));
  child("wk", wk_, std::make_shared<nn::Linear>(shape.dim, kv_dim));
  child("wv", wv_, std::make_shared<nn::Linear>(shape.dim, kv_dim));
  child("wo", wo_, std::make_shared<nn::Linear>(q_dim, shape.dim));
  child("inner_attention", inner_attention_, std::make_shared<nn::AttentionCore>());
}

at::Tensor Attention::forward(const nn::Tensors& inputs) {
  const auto& x = inputs[0];  // [B, T, D]
  const auto& freqs_cis = inputs[1];
  const auto heads = [&](const at::Tensor& projected) { return projected.unflatten(-1, {-1, head_dim_}); };
  const auto q = nn::apply_rotary_emb(heads((*wq_)(x)), freqs_cis).transpose(1, 2);  // [B, H, T, E]
  const auto k = nn::apply_rotary_emb(heads((*wk_)(x)), freqs_cis).transpose(1, 2);  // [B, K, T, E]
  const auto v = heads((*wv_)(x)).transpose(1, 2);                                   // [B, K, T, E]
  if (cache_) cache_->store(layer_, k, v);
  nn::Tensors attended = {q, k, v};
  attended.insert(attended.end(), inputs.begin() + 2, inputs.end());
  const auto out = cache_ && cache_->size() > 0 ? cache_->attend(layer_, q) : (*inner_attention_)(std::move(attended));
  return (*wo_)(out.transpose(1, 2).contiguous().flatten(2));
}

void Attention::use_cache(nn::KvCache* cache, std::size_t layer) {
  cache_ = cache;
  layer_ = layer;
}

}  // namespace titan::models
