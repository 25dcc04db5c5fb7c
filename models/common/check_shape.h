// Checks the shape of a decoder: keys of [model.args], a complete shape, and a shape split over ranks. No torch.
#pragma once

#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"
#include "facts/model_stats.h"
#include "models/common/shapes.h"

namespace titan::models {

// Appends the contradictions among the keys of [model.args] that are set, and between them and the degree of tensor
// parallelism. Values of the flavor are not considered. Each fault names a change that fixes it.
void check_decoder_args(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Appends a fault if model.args.dim and n_heads are set and do not give heads of an even width, for models whose heads
// are dim / n_heads wide.
void check_width_of_heads(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Appends a fault if frequencies of the rotary embedding are scaled without a type, for models whose flavors do not
// scale them.
void check_scaling_has_type(const config::JobConfig& config, std::vector<config::Fault>& errors);

// Throws ConfigError for the same as check_width_of_heads() in a complete shape.
void check_divided_width(const AttentionShape& shape);

// Throws ConfigError if heads have an odd width, key/value heads do not divide the query heads, a layer has no width,
// or the model is larger than any that is taken (config/keys/largest_sizes.h): its tensors could not be counted.
void check_decoder_shape(const DecoderShape& shape);

// Throws ConfigError if tensor parallelism cannot split the model: the degree does not divide the heads (the message
// names the nearest degrees that do), or leaves a rank without rows of the vocabulary.
void check_mesh(const ModelStats& stats, const config::Parallelism& parallelism);

// Appends faults if the model has no such pipeline (config/pipeline_plan.h), or ties parameters of two stages that are
// on one rank. Nothing if a pipeline has one rank.
void check_pipeline(const ModelStats& stats, const config::JobConfig& config, std::vector<config::Fault>& errors);

}  // namespace titan::models
