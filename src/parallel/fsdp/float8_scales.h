// Scales of the weights that are gathered in float8 (torchao/float8/fsdp_utils.py). Every rank rounds its own shard, so
// all must use one scale, which comes from the largest magnitude in all shards.
#pragma once

#include <vector>

#include "distributed/process_group.h"
#include "nn/module.h"
#include "parallel/fsdp/fsdp_param.h"

namespace titan::fsdp {

// Returns those of `params` that are gathered in float8.
std::vector<FsdpParam*> float8_params(const std::vector<FsdpParam*>& params);

// Returns the scales of these parameters, float32 [params] on the compute device. Collective over `shards`: one
// all-reduce.
at::Tensor float8_scales(const std::vector<FsdpParam*>& params, dist::ProcessGroup& shards);

// Computes the scales for all gathers at and below `module` from now on, with one all-reduce (torchao's
// precompute_float8_dynamic_scale_for_fsdp), until forget_float8_scales(): call that before the weights change. Without
// it every gather computes its own, which are the same. Collective over the mesh.
void precompute_float8_scales(nn::Module& module);
void forget_float8_scales(nn::Module& module);

}  // namespace titan::fsdp
