// How a Llama is spread over ranks: tensor parallelism, activation checkpointing on the blocks, then
// fully_shard bottom-up.
#pragma once

#include "contract/train_contract.h"
#include "models/llama3/llama3.h"

namespace titan::models {

// Groups that communicate together: tok_embeddings; each block; norm and output; the root owns nothing. The gradients
// are summed, not averaged: the loss is divided by the global token count. The model is on meta. Not collective, but
// where gathered parameters are re-sharded over neighbours.
void parallelize_llama(Llama& model, const ParallelContext& context);

}  // namespace titan::models
