// Gradient clipping over shards, exact, without gathering a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "distributed/tensor/sharding.h"

namespace titan::optim {

// This rank's part of one parameter's gradient, and the groups (mesh axes) over which the parts make up the whole. A
// group is named once; none: every rank has the whole. Replicas are not named. The part may be empty; undefined counts
// as empty.
struct ShardedGrad {
  at::Tensor grad;
  std::vector<dist::ProcessGroup*> sharded_over;
};

// The groups over which the parts of a tensor make up the whole: those of the mesh axes that cut it, the outermost
// first. None for one that is not sharded. The groups live as long as the sharding's World.
std::vector<dist::ProcessGroup*> groups_that_cut(const std::optional<dist::Sharding>& sharding);

// The norm of order `norm_type` over the whole gradients, float32 0-d on the device of the first one, as
// torch.nn.utils.get_total_norm: the norm of the gradients' norms. Any order: inf and -inf are the largest and smallest
// magnitude, and 0 is, as there, the number of gradients that are not all zero. One all-reduce for each group of each
// different `sharded_over`; nothing is read back to the host unless `error_if_nonfinite`, which throws Error (on every
// rank alike) when the norm is NaN or infinite. Collective over the groups; every rank must give as many gradients, in
// the same order, with the same groups.
at::Tensor total_norm(const std::vector<ShardedGrad>& grads, double norm_type = 2.0, bool error_if_nonfinite = false);

// What clipping does to gradients, float32 on the device of the first one, and 0-d unless said otherwise.
struct Clip {
  at::Tensor norm;    // total_norm
  at::Tensor factor;  // min(max_norm / (norm + 1e-6), 1): times it, their norm is at most max_norm. NaN where that is
  at::Tensor each;    // [grads]: the norm of each whole gradient, of which `norm` is the norm
};

// Computes it and leaves the gradients as they are: AdamW::step() takes the factor. Collective as total_norm().
Clip clip_factor(const std::vector<ShardedGrad>& grads, double max_norm, double norm_type = 2.0,
                 bool error_if_nonfinite = false);

// Multiplies the gradients in place by `factor`, float32 0-d, on whatever devices they are; undefined and empty ones
// are passed over.
void scale_grads(const std::vector<at::Tensor>& grads, const at::Tensor& factor);

// clip_factor() and scale_grads(), for who reads the clipped gradients: scales them in place so that their total_norm
// is at most `max_norm`, and returns the norm before that. Always multiplies, by at most 1; NaN and infinity pass
// through.
at::Tensor clip_grad_norm(const std::vector<ShardedGrad>& grads, double max_norm, double norm_type = 2.0,
                          bool error_if_nonfinite = false);

}  // namespace titan::optim
