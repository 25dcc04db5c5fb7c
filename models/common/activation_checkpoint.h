// Applies [activation_checkpoint] to the blocks of a model.
#pragma once

#include <string>

#include "config/job_config.h"
#include "nn/module.h"

namespace titan::models {

// Recomputes blocks by mode. "full": every block. "selective" with n: every n-th block, beginning with the n-th as in
// TorchTitan; with "op": every block, but outputs of some operators are kept. "none": no block. `fqn`: name of the
// list in the model ("layers"), with which the configuration names modules. Throws ConfigError if the configuration
// names modules that are not linear layers.
void checkpoint_blocks(const nn::ModuleList& blocks, const std::string& fqn,
                       const config::ActivationCheckpoint& config);

}  // namespace titan::models
