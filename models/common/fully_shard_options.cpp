#include "models/common/fully_shard_options.h"

#include <string>

#include "config/validate.h"
#include "distributed/config_dtype.h"

namespace titan::models {

fsdp::FullyShardOptions fully_shard_options(const ParallelContext& context) {
  fsdp::FullyShardOptions options{.mesh = context.meshes.fsdp};
  options.mp_policy.param_dtype = dist::dtype_of(context.job.training.mixed_precision_param);
  options.mp_policy.reduce_dtype = dist::dtype_of(context.job.training.mixed_precision_reduce);
  if (context.job.training.enable_cpu_offload) options.offload_policy = fsdp::CPUOffloadPolicy{};
  return options;
}

ReshardRule reshard_rule(const ParallelContext& context) {
  const std::string& policy = context.job.parallelism.fsdp_reshard_after_forward;
  if (policy == "always") return {true, true};
  if (policy == "never") return {false, false};
  const auto size = config::reshard_group_size(context.job.parallelism, context.meshes.fsdp.size("fsdp"));
  if (!size) return {true, false};
  return {static_cast<int>(*size), false};
}

}  // namespace titan::models
