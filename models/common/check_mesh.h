// What the parallel degrees ask of a model's shape.
#pragma once

#include "config/job_config.h"
#include "facts/model_stats.h"

namespace titan::models {

// Throws ConfigError, with the nearest degree that works, where tensor parallelism cannot split the model: heads that do
// not divide, fewer rows of the vocabulary than ranks need.
void check_mesh(const ModelStats& stats, const config::Parallelism& parallelism);

}  // namespace titan::models
