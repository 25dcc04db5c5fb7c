// What a run would hold, on paper: nothing is allocated, no rank is started.
#pragma once

#include <string>

#include "config/job_config.h"
#include "contract/train_spec.h"

namespace titan::train {

// A table of parameters, FLOPs a token and bytes a rank by kind, for `world_size` ranks. Builds and shards the model on
// the meta device. Throws ConfigError where the degrees do not fit.
std::string dry_run(const config::JobConfig& config, const TrainSpec& spec, int world_size);

}  // namespace titan::train
