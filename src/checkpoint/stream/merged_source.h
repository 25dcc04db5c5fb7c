// Adds low-rank adapters (nn/lora_linear.h) to the weights of a model, as a stream.
#pragma once

#include <memory>

#include "checkpoint/stream/tensor_source.h"

namespace titan::checkpoint {

// Returns the model of `source` without adapters: the weight W of each layer that has one is W + scale * B A, computed
// in float32 and returned so, for the writer to cast once. TensorInfo keeps W's dtype. Reads each adapter once, when
// its weight is first read. Throws CheckpointError if there are no adapters, or if parts of one are missing or do not
// fit its weight.
std::unique_ptr<TensorSource> merge_adapters(std::unique_ptr<TensorSource> source, double scale);

}  // namespace titan::checkpoint
