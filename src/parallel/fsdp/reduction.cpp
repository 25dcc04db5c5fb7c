#include "parallel/fsdp/reduction.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/memory/stream_copy.h"
#include "trace/operation.h"

namespace titan::fsdp {
namespace {

constexpr Operation::Kind kReduction{nullptr, MemoryUse::kReduction};

// Returns the part of `factor` to divide by before the sum. A float16 sum that is divided only afterwards would
// overflow, and one that is divided only before would underflow. So about the square root is divided out on either
// side, in powers of two (torch's _get_gradient_divide_factors).
double factor_before_sum(double factor, at::ScalarType dtype) {
  double before = 1;
  if (dtype != at::kHalf) return before;
  while (std::fmod(factor, before) == 0 && factor / before > before) before *= 2;
  return before;
}

}  // namespace

Reduction::Reduction(std::vector<FsdpParam*> params, std::vector<at::Tensor> grads, const ReductionRule& rule)
    : params_(std::move(params)), rule_(rule) {
  const Operation operation(kReduction, rule_.label);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    TITAN_CHECK(grads[i].scalar_type() == grads.front().scalar_type(),
                "[fsdp] the gradients of " + params_[i]->fqn() + " and " + params_.front()->fqn() +
                    ", which are reduced together, have different dtypes");
  }
  const auto dtype = rule_.reduce_dtype.value_or(grads.front().scalar_type());
  rule_.reduce_dtype = dtype;
  if (is_local()) {
    grads_ = std::move(grads);
    divide_after_ = rule_.divide_factor;
    return;
  }
  const double before = factor_before_sum(rule_.divide_factor, dtype);
  scatter_ = copy_in_gradients(params_, grads, dtype, before, *rule_.shard_group);
  divide_after_ = rule_.divide_factor / before;
  // Divides in the same pass over memory.
  is_mean_ = scatter_.own.defined() && !rule_.replicate_group && divide_after_ == rule_.shard_group->size();
  if (is_mean_) divide_after_ = 1;
}

bool Reduction::is_local() const { return rule_.shard_group->size() == 1 && !rule_.replicate_group; }

void Reduction::start_reduce_scatter() {
  const Operation operation(kReduction, rule_.label);
  if (is_local()) return;
  fsdp::start_reduce_scatter(scatter_, *rule_.shard_group, is_mean_ ? dist::ReduceOp::kAvg : dist::ReduceOp::kSum);
}

void Reduction::wait_reduce_scatter() { finish_reduce_scatter(scatter_); }

void Reduction::add_partial() {
  if (!rule_.replicate_group) return;
  const at::NoGradGuard no_grad;
  added_partial_ = std::exchange(*rule_.partial, at::Tensor());
  if (added_partial_.defined()) scatter_.output.add_(added_partial_);
  if (rule_.all_reduce) return;
  *rule_.partial = scatter_.output;
  is_partial_ = true;
}

void Reduction::start_all_reduce() {
  const Operation operation(kReduction, rule_.label);
  all_reduce_ = rule_.replicate_group->all_reduce(scatter_.output, dist::ReduceOp::kSum);
}

void Reduction::release_input() {
  scatter_.input.reset();
  added_partial_.reset();
}

bool Reduction::finish() {
  if (is_partial_) return false;
  const Operation operation(kReduction, rule_.label);
  const at::NoGradGuard no_grad;
  if (is_local()) return finish_local();
  all_reduce_.wait();
  if (divide_after_ != 1) scatter_.output.div_(divide_after_);
  const auto reduced = scatter_.output.to(params_.front()->stored_dtype());
  std::int64_t offset = 0;
  bool on_the_way = false;
  for (auto* param : params_) {
    on_the_way |= accumulate(*param, reduced.narrow(0, offset, param->chunk_numel()));
    offset += param->chunk_numel();
  }
  return on_the_way;
}

bool Reduction::accumulate(FsdpParam& param, const at::Tensor& chunk) const {
  if (rule_.observer) rule_.observer->adds_gradient(param);
  const bool on_the_way = param.accumulate_sharded_grad(chunk);
  if (rule_.observer) rule_.observer->added_gradient(param);
  return on_the_way;
}

// Casts the gradients to the reduce dtype, in one buffer: one kernel on a device.
void Reduction::cast_grads() {
  std::int64_t total = 0;
  for (const auto& grad : grads_) total += grad.numel();
  const auto flat = at::empty({total}, grads_.front().options().dtype(*rule_.reduce_dtype));
  auto casts = split_as(flat, grads_);
  kernels::copy_past_caches(casts, grads_);
  grads_ = std::move(casts);
}

// Finishes with one rank: the result is the gradients themselves.
bool Reduction::finish_local() {
  if (grads_.front().scalar_type() != *rule_.reduce_dtype) cast_grads();
  bool on_the_way = false;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    auto grad = std::exchange(grads_[i], at::Tensor());
    if (divide_after_ != 1) grad = grad.div(divide_after_);
    on_the_way |= accumulate(*params_[i], grad.to(params_[i]->stored_dtype()).contiguous().view(-1));
  }
  return on_the_way;
}

}  // namespace titan::fsdp
