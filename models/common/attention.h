// Grouped-query attention with rotary embeddings, as most decoders have it.
//
// B rows, T tokens, D width, H query heads, K key/value heads, E head dim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "models/common/shapes.h"
#include "nn/attention_core.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"

namespace titan::models {

// Children: wq [H * E, D], wk and wv [K * E, D], wo [D, H * E], and inner_attention without parameters. forward()
// takes the number of heads from the weights: if the heads are split, it works on those of this rank.
class Attention : public nn::Module {
 public:
  explicit Attention(const AttentionShape& shape);
  // x [B, T, D], freqs_cis [T, E / 2], and with block-causal attention AttentionCore's document inputs -> [B, T, D]
  at::Tensor forward(const nn::Tensors& inputs) override;
  // See LanguageModel::use_cache. `layer`: this module's index in the cache.
  void use_cache(nn::KvCache* cache, std::size_t layer);

 private:
  std::int64_t head_dim_;
  std::shared_ptr<nn::Linear> wq_, wk_, wv_, wo_;
  std::shared_ptr<nn::AttentionCore> inner_attention_;
  nn::KvCache* cache_ = nullptr;  // set while text is generated
  std::size_t layer_ = 0;         // this module's index in the cache
};

}  // namespace titan::models
