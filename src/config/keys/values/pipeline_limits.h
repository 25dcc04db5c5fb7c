// Checks of the keys of a pipeline with those of other tables. config/pipeline_plan.h checks what depends on the model.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "config/keys/source.h"

namespace titan::config {

// Finds what a pipeline cannot be combined with. Nothing if there is one rank.
std::vector<Fault> find_wrong_pipeline(const JobConfig& config);

// Returns a warning for each key that only a pipeline reads, if it is set and there is one rank. TorchTitan's files set
// parallelism.pipeline_parallel_schedule without a pipeline, so that it gets none.
std::vector<std::string> warn_of_unused_pipeline_keys(const JobConfig& config);

}  // namespace titan::config
