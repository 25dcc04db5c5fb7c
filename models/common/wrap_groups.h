// Applies parallelism.fsdp_wrap to a model: which modules each fully_shard call takes.
#pragma once

#include <optional>
#include <vector>

#include "config/job_config.h"
#include "contract/train_contract.h"
#include "parallel/fsdp/wrap_policy.h"

namespace titan::models {

// Returns the groups of the key's policy, bottom-up, without the root's; nullopt for "block", the model's own grouping.
// Throws ConfigError, naming the key, for a pattern that names no module.
std::optional<std::vector<fsdp::WrapGroup>> wrap_groups(nn::Module& model, const config::Parallelism& parallelism);

// Throws the ConfigError that wrap_groups() would for the model of `spec`, which it builds on the meta device.
void check_wrap(const TrainSpec& spec, const config::Parallelism& parallelism);

}  // namespace titan::models
