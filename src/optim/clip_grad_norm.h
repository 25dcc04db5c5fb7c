// Gradient clipping over shards, exact, without gathering a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "dist/process_group.h"

namespace titan::optim {

// Scales `grads` (this rank's shards) so that the L2 norm of the whole gradient is at most `max_norm`, and returns the
// norm before that, float32 0-d. Per parameter: local norms, squared, summed over `shard_group` in one all-reduce,
// root; then the norm of those (torch.nn.utils.clip_grad_norm_ on DTensors). Always multiplies, by at most 1; NaN and
// Inf pass through to the result. Collective over `shard_group`; every rank must give as many gradients, empty shards
// included.
at::Tensor clip_grad_norm(const std::vector<at::Tensor>& grads, double max_norm, dist::ProcessGroup& shard_group);

}  // namespace titan::optim
