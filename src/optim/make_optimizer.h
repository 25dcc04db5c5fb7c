// Makes optimizers by name. One row per name here and in facts/optimizer_facts.cpp.
#pragma once

#include <memory>
#include <vector>

#include "config/job_config.h"
#include "optim/optimizer.h"

namespace titan::optim {

// Returns the optimizer that [optimizer].name says, with the values of that table. `params`: see Optimizer.
std::unique_ptr<Optimizer> make_optimizer(const config::Optimizer& options, std::vector<TrainedParameter> params);

}  // namespace titan::optim
