// Makes fully_shard's options from the configuration, for any model.
#pragma once

#include "contract/train_contract.h"
#include "parallel/fsdp/policies.h"

namespace titan::models {

// Returns the mesh, dtypes and offloading of every group. ReshardRule decides when gathered parameters are freed.
fsdp::FullyShardOptions fully_shard_options(const ParallelContext& context);

// Reshard settings of the blocks and of the last group. "default" reshards the blocks and keeps the last group, with
// which backward starts. "always" and "never" apply to all groups. A number reshards the blocks over that many
// neighboring ranks, and keeps the last group.
struct ReshardRule {
  fsdp::ReshardAfterForward blocks;
  fsdp::ReshardAfterForward last;
};

// Returns the rule for parallelism.fsdp_reshard_after_forward. Throws ConfigError for a number that does not divide
// the shard ranks.
ReshardRule reshard_rule(const ParallelContext& context);

}  // namespace titan::models
