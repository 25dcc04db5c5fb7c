#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/operators.h"

namespace titan::optim {
namespace {

// Elements of which float32 copies exist at once.
constexpr std::int64_t kCopiedOnHost = std::int64_t{1} << 18, kCopiedOnDevice = std::int64_t{1} << 24;

at::Tensor in_float32(const at::Tensor& tensor) { return tensor.to(at::kFloat); }  // itself if it is

void round_into(const at::Tensor& target, const at::Tensor& value) {
  if (!target.is_same(value)) target.copy_(value);
}

}  // namespace

AdamW::AdamW(std::vector<TrainedParameter> params, const AdamWOptions& options, std::vector<ParameterRates> rates)
    : Optimizer(std::move(params)), options_(options), rates_(std::move(rates)) {
  const at::NoGradGuard no_grad;
  if (rates_.empty()) rates_.resize(parameters().size(), {.weight_decay = options.weight_decay});
  TITAN_CHECK(rates_.size() == parameters().size(), "rates of " + std::to_string(rates_.size()) + " parameters");
  for (const auto& param : parameters()) {
    // The step counter is on the parameter's device, where the kernel reads it.
    const auto on_device = at::TensorOptions().dtype(at::kFloat).device(param.tensor.device());
    states_.push_back({param.tensor, {}, {}, at::zeros({}, on_device)});
  }
}

void AdamW::allocate_moments(State& state) const {
  if (state.exp_avg.defined()) return;
  const at::NoGradGuard no_grad;
  const auto options = state.param.options().dtype(options_.state_dtype.value_or(state.param.scalar_type()));
  state.exp_avg = at::zeros_like(state.param, options);
  state.exp_avg_sq = at::zeros_like(state.param, options);
}

std::vector<StateTensor> AdamW::state(std::size_t index) {
  State& state = states_.at(index);
  allocate_moments(state);
  return {
      {"step", state.step, /*is_like_parameter=*/false}, {"exp_avg", state.exp_avg}, {"exp_avg_sq", state.exp_avg_sq}};
}

std::vector<Hyperparameter> AdamW::hyperparameters(std::size_t index) const {
  return {{"betas", Value::tuple({options_.beta1, options_.beta2}), {"optimizer.beta1", "optimizer.beta2"}},
          {"eps", options_.eps, {"optimizer.eps"}},
          {"weight_decay", rates_.at(index).weight_decay, {"optimizer.weight_decay"}},
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
  std::vector<at::Tensor>* const sums = new_sums();
  StepOptions options = given;
  for (auto& state : states_) allocate_moments(state);  // also in a step that is skipped
  if (options.found_inf.defined() && options.found_inf.is_cpu()) {
    if (options.found_inf.item<float>() != 0) return;
    options.found_inf.reset();  // any kernel may take the step
  }
  count_steps(options.found_inf);
  std::vector<Update> by_aten, of_two_dtypes;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    const auto& grad = state.param.grad();
    if (!grad.defined() || grad.numel() == 0) continue;
    const Update update = {state.param, grad, state.exp_avg, state.exp_avg_sq, state.step, rates_[i]};
    if (state.exp_avg.scalar_type() != state.param.scalar_type()) {
      of_two_dtypes.push_back(update);
    } else if (!step_in_one_pass(update, options, sums ? &(*sums)[i] : nullptr)) {
      by_aten.push_back(update);
    }
  }
  step_by_aten(by_aten, options);
  step_in_float32(of_two_dtypes, options);
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
bool AdamW::step_in_one_pass(const Update& update, const StepOptions& options, at::Tensor* sums) const {
  if (options.found_inf.defined() || !update.param.is_cpu()) return false;
  std::optional<at::Tensor> summed;
  if (sums) summed = at::empty({2, 3}, at::kLong);
  if (!ops::adamw(update.param, update.grad, update.exp_avg, update.exp_avg_sq, options_.lr * update.rates.lr_factor,
                  options_.beta1, options_.beta2, options_.eps, update.rates.weight_decay, update.step.item<float>(),
                  options.grad_factor.defined() ? options.grad_factor.item<float>() : 1, summed))
    return false;
  if (sums) *sums = *summed;
  return true;
}

at::Tensor AdamW::sums_now(std::size_t index) {
  const State& state = states_.at(index);
  const std::vector<std::int64_t> sums = {ops::adamw_sum(state.param), ops::adamw_sum(state.exp_avg),
                                          ops::adamw_sum(state.exp_avg_sq)};
  return at::tensor(sums, at::kLong);
}

// ATen's kernel takes one rate for all.
void AdamW::step_by_aten(const std::vector<Update>& updates, const StepOptions& options) const {
  std::vector<std::pair<ParameterRates, std::vector<Update>>> groups;
  for (const Update& update : updates) {
    auto group = std::ranges::find(groups, update.rates, [](const auto& each) { return each.first; });
    if (group == groups.end()) group = groups.insert(group, {update.rates, {}});
    group->second.push_back(update);
  }
  for (const auto& [rates, members] : groups) step_group_by_aten(members, rates, options);
}

void AdamW::step_group_by_aten(const std::vector<Update>& updates, const ParameterRates& rates,
                               const StepOptions& options) const {
  std::vector<at::Tensor> params, grads, exp_avgs, exp_avg_sqs, steps;
  for (const auto& update : updates) {
    params.push_back(update.param);
    grads.push_back(update.grad);
    exp_avgs.push_back(update.exp_avg);
    exp_avg_sqs.push_back(update.exp_avg_sq);
    steps.push_back(update.step);
  }
  if (options.grad_factor.defined()) scale_grads(grads, options.grad_factor);
  std::optional<at::Tensor> skip;
  if (options.found_inf.defined()) skip = options.found_inf.to(params.front().device());
  at::_fused_adamw_(params, grads, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, options_.lr * rates.lr_factor,
                    options_.beta1, options_.beta2, rates.weight_decay, options_.eps, /*amsgrad=*/false,
                    /*maximize=*/false,
                    /*grad_scale=*/{}, skip);
}

// Widening and rounding back do not change values that a kernel leaves alone, as in a step that is skipped. Both
// kernels treat elements alike wherever a part begins, if it begins at a multiple of their vectors.
void AdamW::step_in_float32(const std::vector<Update>& updates, const StepOptions& options) const {
  std::vector<Update> parts, copies;
  std::int64_t copied = 0;
  const auto round_back = [](const Update& part, const Update& copy) {
    round_into(part.param, copy.param);
    round_into(part.exp_avg, copy.exp_avg);
    round_into(part.exp_avg_sq, copy.exp_avg_sq);
  };
  const auto flush = [&] {
    step_by_aten(copies, options);
    for (std::size_t i = 0; i < parts.size(); ++i) round_back(parts[i], copies[i]);
    parts.clear();
    copies.clear();
    copied = 0;
  };
  const auto take = [&](const Update& part, std::int64_t limit) {
    if (copied + part.param.numel() > limit) flush();
    // The kernels read the gradient's elements in the order of the parameter's.
    const at::Tensor grad = in_float32(part.grad);
    const Update copy = {in_float32(part.param),
                         part.param.is_contiguous() ? grad.contiguous() : grad,
                         in_float32(part.exp_avg),
                         in_float32(part.exp_avg_sq),
                         part.step,
                         part.rates};
    if (step_in_one_pass(copy, options)) return round_back(part, copy);
    parts.push_back(part);
    copies.push_back(copy);
    copied += part.param.numel();
  };
  for (const Update& update : updates) {
    const std::int64_t limit = update.param.is_cpu() ? kCopiedOnHost : kCopiedOnDevice, numel = update.param.numel();
    if (numel <= limit || !update.param.is_contiguous() || !update.exp_avg.is_contiguous()) {
      take(update, limit);
      continue;
    }
    const at::Tensor grad = update.grad.reshape(-1);
    for (std::int64_t begin = 0; begin < numel; begin += limit) {
      const std::int64_t length = std::min(limit, numel - begin);
      const auto slice = [&](const at::Tensor& tensor) { return tensor.view(-1).narrow(0, begin, length); };
      take({slice(update.param), grad.narrow(0, begin, length), slice(update.exp_avg), slice(update.exp_avg_sq),
            update.step, update.rates},
           limit);
    }
  }
  flush();
}

}  // namespace titan::optim
