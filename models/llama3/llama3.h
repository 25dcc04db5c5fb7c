// The Llama decoder: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU. Single-device maths; sharding
// attaches from outside (parallelize.h).
//
// B rows, T tokens, V vocabulary, D width, F feed-forward width, H query heads, K key/value heads, E head dim (D / H).
#pragma once

#include <memory>
#include <optional>

#include "contract/model.h"
#include "models/llama3/flavors.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"

namespace titan::models {

class Attention : public nn::Module {
 public:
  explicit Attention(const LlamaArgs& args);
  // x [B, T, D], freqs_cis [T, E / 2], and with block-causal attention the documents' lengths -> [B, T, D]
  at::Tensor forward(const nn::Tensors& inputs) override;
  // See LanguageModel::use_cache. `layer`: its number in the cache.
  void use_cache(nn::KvCache* cache, std::size_t layer);

 private:
  std::int64_t n_heads_, n_kv_heads_, head_dim_;
  std::shared_ptr<nn::Linear> wq_, wk_, wv_, wo_;
  nn::KvCache* cache_ = nullptr;  // while text is generated
  std::size_t layer_ = 0;         // of this module in it
};

class FeedForward : public nn::Module {
 public:
  FeedForward(std::int64_t dim, std::int64_t hidden_dim);
  at::Tensor forward(const nn::Tensors& inputs) override;  // [B, T, D] -> [B, T, D]

 private:
  std::shared_ptr<nn::Linear> w1_, w2_, w3_;
};

class TransformerBlock : public nn::Module {
 public:
  explicit TransformerBlock(const LlamaArgs& args);
  at::Tensor forward(const nn::Tensors& inputs) override;  // x [B, T, D], what Attention takes besides -> [B, T, D]
  Attention& attention() { return *attention_; }

 private:
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<FeedForward> feed_forward_;
  std::shared_ptr<nn::RMSNorm> attention_norm_, ffn_norm_;
};

// The projection to logits, which with labels goes on to the loss.
class Output : public nn::Linear {
 public:
  using nn::Linear::Linear;
  at::Tensor forward(const nn::Tensors& inputs) override;  // [B, T, D] -> [B, T, V]; with labels [B, T], 0-d
};

class Llama : public LanguageModel {
 public:
  // `seq_len`: rows of the rotary table. `document_end`: the token that ends a document, for block-causal attention.
  Llama(const LlamaArgs& args, std::int64_t seq_len, std::optional<std::int64_t> document_end = std::nullopt);
  at::Tensor forward(const nn::Tensors& inputs) override;
  void init_weights(nn::Initializer& initializer) override;
  void use_cache(nn::KvCache* cache) override;

  nn::Module& tok_embeddings() { return *tok_embeddings_; }
  nn::ModuleList& layers() { return *layers_; }
  nn::Module& norm() { return *norm_; }
  nn::Module& output() { return *output_; }

 private:
  at::Tensor continue_cached(const at::Tensor& tokens);

  LlamaArgs args_;
  std::int64_t seq_len_;
  std::optional<std::int64_t> document_end_;
  std::shared_ptr<nn::Embedding> tok_embeddings_;
  std::shared_ptr<nn::ModuleList> layers_;
  std::shared_ptr<nn::RMSNorm> norm_;
  std::shared_ptr<Output> output_;
  at::Tensor freqs_cis_;          // complex64 [T, E / 2]
  nn::KvCache* cache_ = nullptr;  // while text is generated
};

}  // namespace titan::models
