// Lets a model continue rows of tokens: while a CachedModel lives, attention keeps keys and values in caches.
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

// An attention core that keeps the keys and values of several rows. A call for a new row is an ordinary one, with all
// tokens of the row. In the calls after it, each token is the next one of another row: the layers around attention work
// on each token separately, so the rows lie along the dim T of [1, H, T, E] and may differ in length.
class CachedCore : public nn::AttentionCore {
 public:
  // `layer`: index of this core in the caches. `rows`: the caches of the current call's rows, which must outlive this.
  CachedCore(const std::vector<KvCache*>& rows, std::size_t layer) : rows_(rows), layer_(layer) {}
  at::Tensor forward(const nn::Tensors& inputs) override;

 private:
  const std::vector<KvCache*>& rows_;
  std::size_t layer_;
};

class CachedModel {
 public:
  // Replaces the attention cores of `model`, and computes only logits that choose a token, until it is destroyed. The
  // model must outlive this.
  explicit CachedModel(LanguageModel& model);
  ~CachedModel();
  CachedModel(const CachedModel&) = delete;
  CachedModel& operator=(const CachedModel&) = delete;

  // Begins a row with `tokens`, at least one; `row` is empty and must live as long as it is used here. Returns the
  // logits [1, V] of the token that follows. Collective if the model is sharded.
  at::Tensor begin(KvCache& row, const std::vector<std::int64_t>& tokens);
  // Adds tokens[i] to rows[i], which have begun and are all different. Returns the logits [rows, V] of the tokens that
  // follow. Collective if the model is sharded.
  at::Tensor next(const std::vector<KvCache*>& rows, const std::vector<std::int64_t>& tokens);

 private:
  struct Replaced {
    nn::Module* parent;
    std::string name;
    std::shared_ptr<nn::Module> core;
  };

  LanguageModel& model_;
  std::vector<KvCache*> rows_;  // of the current call
  bool begins_ = false;         // the current call begins a row
  std::vector<Replaced> replaced_;
};

}  // namespace titan::generate
