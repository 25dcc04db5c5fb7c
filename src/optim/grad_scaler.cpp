#include "optim/grad_scaler.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace titan::optim {
namespace {

// Groups gradients by device and dtype: the kernels take one of each at a time.
std::vector<std::vector<at::Tensor>> alike(const std::vector<at::Tensor>& grads) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const auto& grad : grads) {
    if (!grad.defined() || grad.numel() == 0) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g[0].device() == grad.device() && g[0].scalar_type() == grad.scalar_type();
    });
    if (group == groups.end()) group = groups.insert(group, std::vector<at::Tensor>());
    group->push_back(grad);
  }
  return groups;
}

}  // namespace

GradScaler::GradScaler(at::Device device, const GradScalerOptions& options)
    : options_(options),
      scale_(at::full({}, options.init_scale, at::TensorOptions().dtype(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions().dtype(at::kInt).device(device))),
      found_inf_(at::zeros({}, scale_.options())) {}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss * scale_; }

void GradScaler::unscale(const std::vector<at::Tensor>& grads, dist::ProcessGroup& world) {
  const at::NoGradGuard no_grad;
  found_inf_ = at::zeros({}, scale_.options());
  const auto inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  for (const auto& group : alike(grads)) {
    const auto device = group[0].device();
    auto found = found_inf_.to(device);
    at::_amp_foreach_non_finite_check_and_unscale_(group, found, inverse.to(device));
    found_inf_ = found.to(found_inf_.device());
  }
  world.all_reduce(found_inf_, dist::ReduceOp::kMax).wait();
}

void GradScaler::update() {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

GradScaler::State GradScaler::state() const { return {scale_.item<double>(), growth_tracker_.item<std::int64_t>()}; }

void GradScaler::set_state(const State& state) {
  scale_.fill_(state.scale);
  growth_tracker_.fill_(state.growth_tracker);
}

}  // namespace titan::optim
