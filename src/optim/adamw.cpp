#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "kernels/operators.h"

namespace titan::optim {

AdamW::AdamW(std::vector<TrainedParameter> params, const AdamWOptions& options)
    : Optimizer(std::move(params)), options_(options) {
  const at::NoGradGuard no_grad;
  for (const auto& param : parameters()) {
    // The step counter is on the parameter's device, where the kernel reads it.
    const auto on_device = at::TensorOptions().dtype(at::kFloat).device(param.tensor.device());
    states_.push_back({param.tensor, {}, {}, at::zeros({}, on_device)});
  }
}

void AdamW::State::allocate_moments() {
  if (exp_avg.defined()) return;
  const at::NoGradGuard no_grad;
  exp_avg = at::zeros_like(param);
  exp_avg_sq = at::zeros_like(param);
}

std::vector<StateTensor> AdamW::state(std::size_t index) {
  State& state = states_.at(index);
  state.allocate_moments();
  return {
      {"step", state.step, /*is_like_parameter=*/false}, {"exp_avg", state.exp_avg}, {"exp_avg_sq", state.exp_avg_sq}};
}

std::vector<Hyperparameter> AdamW::hyperparameters() const {
  return {{"betas", Value::tuple({options_.beta1, options_.beta2}), {"optimizer.beta1", "optimizer.beta2"}},
          {"eps", options_.eps, {"optimizer.eps"}},
          {"weight_decay", options_.weight_decay, {"optimizer.weight_decay"}},
          {"amsgrad", false, {}, /*must_match=*/true},
          {"maximize", false, {}, /*must_match=*/true},
          {"foreach", false},
          {"capturable", false},
          {"differentiable", false},
          {"fused", true},
          {"decoupled_weight_decay", true}};
}

void AdamW::step(const StepOptions& given) {
  const at::NoGradGuard no_grad;
  check_any_grad();
  StepOptions options = given;
  for (auto& state : states_) state.allocate_moments();  // also in a step that is skipped
  if (options.found_inf.defined() && options.found_inf.is_cpu()) {
    if (options.found_inf.item<float>() != 0) return;
    options.found_inf.reset();  // any kernel may take the step
  }
  count_steps(options.found_inf);
  std::vector<State*> others;
  for (auto& state : states_) {
    const auto& grad = state.param.grad();
    if (!grad.defined() || grad.numel() == 0) continue;
    if (!step_in_one_pass(state, options)) others.push_back(&state);
  }
  if (!others.empty()) step_by_aten(others, options);
}

// Counts for every parameter with a gradient, even for an empty shard, which has nothing to update.
void AdamW::count_steps(const at::Tensor& found_inf) {
  std::vector<at::Tensor> on_device;
  for (auto& state : states_) {
    if (!state.param.grad().defined()) continue;
    if (!state.step.is_cpu()) {
      on_device.push_back(state.step);
    } else if (found_inf.defined()) {
      state.step.add_((1 - found_inf).to(at::kCPU));
    } else {
      state.step.add_(1);
    }
  }
  if (on_device.empty()) return;
  // One kernel for all.
  if (found_inf.defined()) {
    at::_foreach_add_(on_device, 1 - found_inf);
  } else {
    at::_foreach_add_(on_device, 1);
  }
}

// Returns false if this program's kernel does not support the parameter or must not be used; nothing is done then.
bool AdamW::step_in_one_pass(const State& state, const StepOptions& options) const {
  if (options.found_inf.defined() || !state.param.is_cpu()) return false;
  return ops::adamw(state.param, state.param.grad(), state.exp_avg, state.exp_avg_sq, options_.lr, options_.beta1,
                    options_.beta2, options_.eps, options_.weight_decay, state.step.item<float>(),
                    options.grad_factor.defined() ? options.grad_factor.item<float>() : 1);
}

void AdamW::step_by_aten(const std::vector<State*>& states, const StepOptions& options) const {
  std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  for (const auto* state : states) {
    params.push_back(state->param);
    grads.push_back(state->param.grad());
    exp_avgs.push_back(state->exp_avg);
    exp_avg_sqs.push_back(state->exp_avg_sq);
    steps.push_back(state->step);
  }
  if (options.grad_factor.defined()) scale_grads(grads, options.grad_factor);
  std::optional<at::Tensor> skip;
  if (options.found_inf.defined()) skip = options.found_inf.to(params.front().device());
  at::_fused_adamw_(params, grads, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, options_.lr, options_.beta1,
                    options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false,
                    /*grad_scale=*/{}, skip);
}

}  // namespace titan::optim
