// The Llama decoder: RMSNorm, rotary embeddings, grouped-query attention, SwiGLU. Single-device math; parallelize.h
// adds sharding from outside.
//
// B rows, T tokens, V vocabulary, D width, E head dim (D / heads).
#pragma once

#include <memory>
#include <optional>

#include "contract/model.h"
#include "models/common/transformer_block.h"
#include "models/llama3/flavors.h"
#include "nn/kv_cache.h"
#include "nn/layers.h"

namespace titan::models {

// The projection to logits. With labels, it also computes the loss.
class Output : public nn::Linear {
 public:
  using nn::Linear::Linear;
  at::Tensor forward(const nn::Tensors& inputs) override;  // [B, T, D] -> [B, T, V]; with labels [B, T], 0-d
};

class Llama : public LanguageModel {
 public:
  // `seq_len`: number of rows of the rotary table. `document_end`: token that ends a document, for block-causal
  // attention.
  Llama(const LlamaArgs& args, std::int64_t seq_len, std::optional<std::int64_t> document_end = std::nullopt);
  at::Tensor forward(const nn::Tensors& inputs) override;
  void init_weights(nn::Initializer& initializer, at::Device buffer_device) override;
  void use_cache(nn::KvCache* cache) override;

  bool is_tied() const { return args_.tied; }
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
