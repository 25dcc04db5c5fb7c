// A language model as the train loop and generation see it.
#pragma once

#include "base/error.h"
#include "nn/init.h"
#include "nn/kv_cache.h"
#include "nn/module.h"

namespace titan {

// A language model: tokens int64 [B, T] -> logits [B, T, V]. With labels int64 [B, T] as a second input it returns the
// sum of their cross entropies, float32 0-d (nn/ops/cross_entropy.h), without holding all logits at once. The tokens
// may be on the host: the model copies them to its device, and reads the host's values without waiting for that copy.
class LanguageModel : public nn::Module {
 public:
  // Fills every parameter (materialized, sharded or not) and creates the buffers on
  // `buffer_device`: the device that computes, which may differ from that of offloaded shards.
  virtual void init_weights(nn::Initializer& initializer, at::Device buffer_device) = 0;

  // Makes each later call continue the tokens of the calls before it, whose keys and values `cache`
  // holds: the first call takes any number of tokens, each later call one token per row. Calls
  // return the logits of the last token, [B, 1, V], without loss or gradient. Null stops this;
  // `cache` must stay alive until then. Throws InternalError if the model does not support it.
  virtual void use_cache(nn::KvCache* /*cache*/) { throw InternalError("this model cannot continue from a cache"); }
};

}  // namespace titan
