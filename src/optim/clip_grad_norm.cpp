#include "optim/clip_grad_norm.h"

#include <ATen/ATen.h>

namespace titan::optim {

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& grads, double max_norm, dist::ProcessGroup& shard_group) {
  const at::NoGradGuard no_grad;
  auto norms = at::stack(at::_foreach_norm(grads, 2)).to(at::kFloat);  // [num_params]
  if (shard_group.size() > 1) {
    norms = norms.square();
    shard_group.all_reduce(norms, dist::ReduceOp::kSum).wait();
    norms = norms.sqrt();
  }
  const auto total = at::linalg_vector_norm(norms, 2);
  const auto scale = at::clamp_max(max_norm / (total + 1e-6), 1.0);
  for (const auto& grad : grads) grad.mul_(scale);
  return total;
}

}  // namespace titan::optim
