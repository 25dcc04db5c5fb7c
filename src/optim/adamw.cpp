#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace titan::optim {

AdamW::AdamW(const std::vector<std::pair<std::string, at::Tensor>>& params, const AdamWOptions& options)
    : options_(options) {
  const at::NoGradGuard no_grad;
  for (const auto& [fqn, param] : params) {
    if (param.is_meta()) {
      throw InternalError("[optim] " + fqn +
                          " is on the meta device: materialize and initialize the model before the "
                          "optimizer is made");
    }
    // The step lives where the kernel reads it: on the parameter's device.
    const auto on_device = at::TensorOptions().dtype(at::kFloat).device(param.device());
    states_.push_back({fqn, param, {}, {}, at::zeros({}, on_device)});
  }
}

std::vector<AdamWState>& AdamW::states() {
  const at::NoGradGuard no_grad;
  for (auto& state : states_) {
    if (state.exp_avg.defined()) continue;
    state.exp_avg = at::zeros_like(state.param);
    state.exp_avg_sq = at::zeros_like(state.param);
  }
  return states_;
}

std::vector<at::Tensor> AdamW::grads() const {
  std::vector<at::Tensor> out;
  for (const auto& state : states_) out.push_back(state.param.grad());
  return out;
}

void AdamW::step(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const bool any = std::any_of(states_.begin(), states_.end(), [](const auto& s) { return s.param.grad().defined(); });
  if (!any && !states_.empty()) {
    throw InternalError("[optim] none of the " + std::to_string(states_.size()) + " parameters from " +
                        states_.front().fqn +
                        " on has a gradient. Run backward first; and make the optimizer after "
                        "fully_shard, which replaces the parameters");
  }
  std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  for (auto& state : states()) {
    const auto& grad = state.param.grad();
    if (!grad.defined()) continue;
    state.step.add_(1);
    if (found_inf.defined()) state.step.sub_(found_inf.to(state.step.device()));
    if (grad.numel() == 0) continue;  // an empty shard: nothing here, but its step counts
    params.push_back(state.param);
    grads.push_back(grad);
    exp_avgs.push_back(state.exp_avg);
    exp_avg_sqs.push_back(state.exp_avg_sq);
    steps.push_back(state.step);
  }
  if (params.empty()) return;
  std::optional<at::Tensor> skip;
  if (found_inf.defined()) skip = found_inf.to(params.front().device());
  at::_fused_adamw_(params, grads, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, options_.lr, options_.beta1,
                    options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false,
                    /*grad_scale=*/{}, skip);
}

void AdamW::zero_grad() {
  for (auto& state : states_) state.param.mutable_grad().reset();
}

}  // namespace titan::optim
