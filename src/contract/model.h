// A language model as the train loop and generation see it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "nn/init.h"
#include "nn/module.h"

namespace titan {

// A language model: tokens int64 [B, T] -> logits [B, T, V]. With labels int64 [B, T] as a second input it returns the
// sum of their cross entropies, float32 0-d (nn/ops/cross_entropy.h), without holding all logits at once; undefined
// labels are none. A third input int64 [T] gives the positions of the tokens in their rows; without it they are 0, 1,
// ... A fourth input int64 [B, T] is Batch::documents: tokens attend only to their own document. It is longer than the
// tokens where these are a part of each row, whose positions are given, and the model's attention is split over ranks.
// A fifth, int64 [B, T], is Batch::labels_of_sample, by which the losses are divided. All but the labels may be on the
// host: the model copies them to its device, and reads the host's values without waiting for that copy.
//
// A sixth input, int64 0-d on the host, runs one stage of a pipeline: it is the stage's number among those of this
// rank. Instead of tokens the stages after the first get the hidden states [B, T, D] of the stage before, and the
// documents of whole rows if the model separates them; the stages before the last return hidden states.
class LanguageModel : public nn::Module {
 public:
  // Fills every parameter (materialized, sharded or not) and creates the buffers on
  // `buffer_device`: the device that computes, which may differ from that of offloaded shards.
  virtual void init_weights(nn::Initializer& initializer, at::Device buffer_device) = 0;

  // Returns the module that maps the last hidden states [B, T, D] to logits. Throws InternalError if there is none.
  virtual nn::Module& output() { throw InternalError("this model has no module for its logits"); }

  // Returns the token that ends a document, if tokens attend only to their own document; else nullopt.
  virtual std::optional<std::int64_t> document_end() const { return std::nullopt; }
};

}  // namespace titan
