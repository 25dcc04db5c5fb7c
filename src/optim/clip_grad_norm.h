// Exact gradient clipping over shards, without gathering a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "distributed/tensor/sharding.h"

namespace titan::optim {

// This rank's part of one parameter's gradient, and the groups (mesh axes) that the gradient is
// sharded over, each named once; empty if every rank holds the full gradient. Groups of replicas
// are not named. The part may be empty; undefined counts as empty.
struct ShardedGrad {
  at::Tensor grad;
  std::vector<dist::ProcessGroup*> sharded_over;
};

// Returns the groups that a tensor is sharded over: those of the mesh axes that split it, the
// outermost first; empty if it is not sharded. The groups live as long as the sharding's World.
std::vector<dist::ProcessGroup*> groups_that_cut(const std::optional<dist::Sharding>& sharding);

// Returns the norm of order `norm_type` over all full gradients, float32 0-d on the device of the first one,
// like torch.nn.utils.get_total_norm: the norm of the gradients' norms. Any order: inf and -inf are the
// largest and smallest magnitude, and 0 is, as in PyTorch, the number of gradients that are not all zero.
// One all-reduce for each group of each different `sharded_over`; nothing is read back to the host unless
// `error_if_nonfinite`, which throws Error (on all ranks) if the norm is NaN or infinite. Collective over
// the groups; every rank must pass the same number of gradients, in the same order, with the same groups.
at::Tensor total_norm(const std::vector<ShardedGrad>& grads, double norm_type = 2.0, bool error_if_nonfinite = false);

// Result of clip_factor(): float32 on the device of the first gradient, 0-d unless noted otherwise.
struct Clip {
  at::Tensor norm;    // total_norm
  at::Tensor factor;  // min(max_norm / (norm + 1e-6), 1): times it, their norm is at most max_norm. NaN if `norm` is
  at::Tensor each;    // [grads]: the norm of each full gradient; `norm` is the norm of these
};

// Computes the clip factor without changing the gradients: Optimizer::step() takes it. Collective like total_norm().
Clip clip_factor(const std::vector<ShardedGrad>& grads, double max_norm, double norm_type = 2.0,
                 bool error_if_nonfinite = false);

// Ranks that have different parameters of one model.
struct ModelParts {
  dist::ProcessGroup& group;
  // [grads], float32, 1 or 0 where another rank counts the gradient, too; undefined if all are this rank's alone.
  at::Tensor owned;
};

// Returns the clip factor of the gradients of all parts, of order 2. `own`: clip_factor() of this rank's with the same
// max_norm; its `each` is returned. Collective over the group.
Clip clip_factor_over(const Clip& own, const ModelParts& parts, double max_norm);

// Multiplies the gradients in place by `factor`, float32 0-d, on any device; skips undefined and empty ones.
void scale_grads(const std::vector<at::Tensor>& grads, const at::Tensor& factor);

// clip_factor() and scale_grads(), for callers that read the clipped gradients: scales them in
// place so that their total_norm is at most `max_norm`, and returns the norm before that. Always
// multiplies, by at most 1; NaN and infinity pass through.
at::Tensor clip_grad_norm(const std::vector<ShardedGrad>& grads, double max_norm, double norm_type = 2.0,
                          bool error_if_nonfinite = false);

}  // namespace titan::optim
