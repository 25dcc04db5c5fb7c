// What [activation_checkpoint] means for the blocks of a model.
#pragma once

#include <string>

#include "config/job_config.h"
#include "nn/module.h"

namespace titan::models {

// "full": every block. "selective" with n: every n-th block (TorchTitan's count starts so that the n-th is the first);
// with "op": every block, which keeps some of its operators' outputs. "none": nothing. `fqn`: of the list below the
// model ("layers"), by which the configuration names modules. Throws ConfigError for modules that it names and that are
// not linear layers.
void checkpoint_blocks(const nn::ModuleList& blocks, const std::string& fqn,
                       const config::ActivationCheckpoint& config);

}  // namespace titan::models
