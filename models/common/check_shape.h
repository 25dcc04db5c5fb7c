// Rules of a decoder's shape: between keys of [model.args], of a complete shape, and of a shape that ranks split. No torch.
#pragma once

#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "facts/model_stats.h"
#include "models/common/shapes.h"

namespace titan::models {

// Appends the contradictions among the keys of [model.args] that are set, and between them and the degree of tensor
// parallelism, whatever the flavor adds. Each names a change that fixes it.
void check_decoder_args(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Throws ConfigError if heads do not divide the width evenly, or key/value heads the query heads.
void check_attention_shape(const AttentionShape& shape);

// Throws ConfigError, with the nearest degree that works, if tensor parallelism cannot split the model: heads that do
// not divide, or fewer rows of the vocabulary than the ranks need.
void check_mesh(const ModelStats& stats, const config::Parallelism& parallelism);

}  // namespace titan::models
