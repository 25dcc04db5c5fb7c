// Lets a model continue a row of tokens: while a CachedModel lives, attention keeps keys and values in a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contract/model.h"
#include "generate/kv_cache.h"
#include "nn/attention_core.h"

namespace titan::generate {

// An attention core whose first call is an ordinary one that stores its keys and values, and whose later calls attend
// with one more token per row to all that is stored.
class CachedCore : public nn::AttentionCore {
 public:
  // `layer`: index of this core in the cache, which must outlive this.
  CachedCore(KvCache& cache, std::size_t layer) : cache_(cache), layer_(layer) {}
  at::Tensor forward(const nn::Tensors& inputs) override;

 private:
  KvCache& cache_;
  std::size_t layer_;
};

class CachedModel {
 public:
  // Replaces the attention cores of `model`, and computes logits of the last token only, until it is destroyed. Holds
  // up to `capacity` tokens of one row. The model must outlive this.
  CachedModel(LanguageModel& model, std::int64_t capacity);
  ~CachedModel();
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // Returns the logits [V] of the token that follows `tokens`, which continue those of the calls before: any number in
  // the first call, then one per call. Collective if the model is sharded.
  at::Tensor logits(const std::vector<std::int64_t>& tokens);

 private:
  struct Replaced {
    nn::Module* parent;
    std::string name;
    std::shared_ptr<nn::Module> core;
  };

  LanguageModel& model_;
  KvCache cache_;
  std::vector<Replaced> replaced_;
};

}  // namespace titan::generate
