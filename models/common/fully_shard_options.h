// What the configuration means for fully_shard, whatever the model.
#pragma once

#include "contract/train_contract.h"
#include "parallel/fsdp/policies.h"

namespace titan::models {

// Mesh, dtypes and offloading of every group. When gathered parameters are freed is a matter of ReshardRule.
fsdp::FullyShardOptions fully_shard_options(const ParallelContext& context);

// "default" keeps the last group: backward starts with it. "always" and "never" are literal; a number re-shards over so
// many neighbours, and again keeps the last group.
struct ReshardRule {
  fsdp::ReshardAfterForward blocks;
  fsdp::ReshardAfterForward last;
};

// parallelism.fsdp_reshard_after_forward. Throws ConfigError for a number that does not divide the shard ranks.
ReshardRule reshard_rule(const ParallelContext& context);

}  // namespace titan::models
