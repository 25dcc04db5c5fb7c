// Applies [lora] to a model: adapters in place of its linear layers' own training (nn/lora_linear.h).
#pragma once

#include <optional>
#include <string>

#include "config/job_config.h"
#include "contract/train_contract.h"

namespace titan::models {

// Returns `spec` with adapters: its models have them at the layers that lora.targets names, and all other parameters
// require no gradient. Its stats count them. Its naming says how PEFT stores them, for a model of `base_model` (a
// folder, if that is known). `lora` must have a rank. Builds the model on the meta device, unless it is too large to
// be trained. Throws ConfigError for a target that names no linear layer.
TrainSpec with_adapters(TrainSpec spec, const config::Lora& lora, const std::optional<std::string>& base_model);

// Returns lora.alpha / lora.rank, the factor of the adapters' product. alpha is the rank if it is not set.
double adapter_scale(const config::Lora& lora);

}  // namespace titan::models
