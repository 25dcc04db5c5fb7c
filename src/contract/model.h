// A language model as the train loop and generation see it.
#pragma once

#include "base/error.h"
#include "nn/init.h"
#include "nn/kv_cache.h"
#include "nn/module.h"

namespace titan {

// A language model: tokens int64 [B, T] -> logits [B, T, V]; with labels int64 [B, T] as a second input, the sum of
// their cross entropies, float32 0-d (nn/ops/cross_entropy.h), for which the logits need not be whole. The tokens may
// be on the host: the model takes them to its device, and what it asks of them itself does not wait for that.
class LanguageModel : public nn::Module {
 public:
  // Fills every parameter (materialized, sharded or not), and makes the buffers anew on `buffer_device`: the one that
  // computes, which need not be that of offloaded shards.
  virtual void init_weights(nn::Initializer& initializer, at::Device buffer_device) = 0;

  // From here on a call continues the tokens of the calls before it, whose keys and values `cache` holds: the first
  // call takes any number of tokens, each later one takes one token per row. The logits are those of the last token,
  // [B, 1, V]; there is no loss and no gradient. Null ends it, and the cache must live until then. Throws InternalError
  // where the model cannot.
  virtual void use_cache(nn::KvCache* /*cache*/) { throw InternalError("this model cannot continue from a cache"); }
};

}  // namespace titan
