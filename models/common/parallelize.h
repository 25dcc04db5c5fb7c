// The passes that parallelize a decoder, and its tensor-parallel plan.
#pragma once

#include <vector>

#include "contract/train_contract.h"
#include "models/common/decoder.h"
#include "parallel/tensor_parallel/parallelize_module.h"

namespace titan::models {

// Returns the style of each layer that has parameters. Between blocks each rank holds its part of the sequence.
tp::Plan tensor_parallel_plan(const DecoderShape& shape, const config::Parallelism& parallelism);

// Returns the plan for calls with any number of tokens: between blocks each rank holds all hidden states, which are
// summed after attention and after the feed-forward. No gradients.
tp::Plan whole_sequence_plan(const DecoderShape& shape);

// Returns the passes of a spec whose build_model() makes a Decoder: the stages of a pipeline, tensor parallelism by
// that plan, attention over rows that ranks share, recomputation of blocks, and fully_shard of the blocks and what is
// around them.
std::vector<ModelPass> decoder_passes();

}  // namespace titan::models
