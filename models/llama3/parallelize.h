// How a Llama is spread over ranks: activation checkpointing on the blocks, then fully_shard bottom-up.
#pragma once

#include "config/job_config.h"
#include "distributed/mesh.h"
#include "models/llama3/llama3.h"

namespace titan::models {

// Groups that communicate together: tok_embeddings; each block; norm and output; the root owns nothing. The gradients
// are summed, not averaged: the loss is divided by the global token count. The model is on meta. Not collective.
void parallelize_llama(Llama& model, const dist::DeviceMesh& mesh, const config::Training& training,
                       const config::Parallelism& parallelism,
                       const config::ActivationCheckpoint& activation_checkpoint);

}  // namespace titan::models
