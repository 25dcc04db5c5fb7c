// Parallelizes a Llama: tensor parallelism, activation checkpointing of the blocks, then fully_shard bottom-up.
#pragma once

#include "contract/train_contract.h"
#include "models/llama3/llama3.h"

namespace titan::models {

// The modules that communicate together are tok_embeddings; each block; norm and output. The root owns no parameters.
// Gradients are summed, not averaged, because the loss is divided by the global token count. The model is on meta. Not
// collective, except if gathered parameters are resharded over smaller groups.
void parallelize_llama(Llama& model, const ParallelContext& context);

}  // namespace titan::models
