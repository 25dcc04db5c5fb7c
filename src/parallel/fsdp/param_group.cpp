#include "parallel/fsdp/param_group.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "kernels/memory/stream_copy.h"
#include "parallel/fsdp/float8_scales.h"
#include "trace/operation.h"

namespace titan::fsdp {
namespace {

// Sums the gradients of parameters that the ranks of another group share (nn::Parameter::gradient_terms), in one
// all-reduce (FSDP2: one per parameter). In the gradients' dtype and before the sums over this mesh, as FSDP2 does.
void sum_gradient_terms(const std::vector<FsdpParam*>& params, std::vector<at::Tensor>& grads) {
  const at::NoGradGuard no_grad;
  dist::ProcessGroup* group = nullptr;
  std::vector<at::Tensor> terms;
  for (std::size_t i = 0; i < params.size(); ++i) {
    auto* const of_param = params[i]->slots().front()->gradient_terms;
    if (!of_param) continue;
    TITAN_CHECK(!group || group == of_param, "two groups have terms of gradients that are reduced together");
    group = of_param;
    terms.push_back(grads[i]);
  }
  if (!group) return;
  const auto flat = at::cat([&] {
    std::vector<at::Tensor> parts;
    for (const auto& term : terms) parts.push_back(term.reshape(-1));
    return parts;
  }());
  group->all_reduce(flat, dist::ReduceOp::kSum).wait();
  auto sums = split_as(flat, terms);
  for (std::size_t i = 0, next = 0; i < params.size(); ++i)
    if (params[i]->slots().front()->gradient_terms) grads[i] = std::move(sums[next++]);
}

}  // namespace

ParamGroup::ParamGroup(std::vector<std::unique_ptr<FsdpParam>> params, const FullyShardOptions& options)
    : params_(std::move(params)), mesh_(options.mesh), policy_(options.mp_policy) {
  for (const auto& param : params_) view_.push_back(param.get());
  const auto& axes = mesh_.axis_names();
  shard_group_ = &mesh_.group(axes.back());
  if (axes.size() == 2 && mesh_.size(axes.front()) > 1) replicate_group_ = &mesh_.group(axes.front());
  if (options.reshard_after_forward) init_reshard_after_forward(*options.reshard_after_forward);
}

void ParamGroup::init_reshard_after_forward(const ReshardAfterForward& rule) {
  reshard_after_forward_ = rule.reshard;
  const int shards = shard_group_->size();
  const int size = rule.group_size.value_or(shards);
  if (size < 1 || shards % size != 0) {
    throw InternalError("[fsdp] reshard_after_forward = " + std::to_string(size) + " does not divide the " +
                        std::to_string(shards) + " shard ranks");
  }
  if (size == shards) return;
  if (size > 1) {
    post_forward_group_ = mesh_.neighbours(mesh_.axis_names().back(), size);
  } else {
    spdlog::warn("[fsdp] reshard_after_forward = 1 keeps whole parameters; say false");
    reshard_after_forward_ = false;
  }
}

void ParamGroup::lazy_init(CommContext& context, std::string name, bool is_root) {
  context_ = &context;
  name_ = std::move(name);
  // Backward needs the root's own parameters at once, so by default they stay after forward.
  is_root_ = is_root;
  std::string on_meta;
  for (auto* param : view_) {
    if (param->sharded_padded().is_meta() && !param->devices().compute.is_meta())
      on_meta += (on_meta.empty() ? "" : ", ") + param->fqn();
    param->init_dtypes(policy_);
  }
  if (!on_meta.empty()) {
    throw InternalError(where() + "still on the meta device at the first forward: " + on_meta +
                        ". Call fsdp::to_empty and initialize them first");
  }
  check_dtypes();
}

// Frozen parameters may be stored in another dtype than trained ones, as in FSDP2: they are gathered in one dtype, and
// have no gradients that would be reduced with those of the others.
void ParamGroup::check_dtypes() const {
  const FsdpParam* first_trained = nullptr;
  for (const auto* param : view_) {
    const bool is_trained = param->sharded_param().requires_grad();
    if (is_trained && !first_trained) first_trained = param;
    const auto& first = is_trained ? *first_trained : *view_.front();
    const bool differs_in_gather = param->param_dtype() != view_.front()->param_dtype();
    if (!differs_in_gather && (!is_trained || param->stored_dtype() == first.stored_dtype())) continue;
    const auto& other = differs_in_gather ? *view_.front() : first;
    throw InternalError(where() + param->fqn() + " is stored as " + c10::toString(param->stored_dtype()) + " and " +
                        other.fqn() + " as " + c10::toString(other.stored_dtype()) +
                        ": parameters of one group are gathered in one buffer; give both one dtype, or separate "
                        "fully_shard calls");
  }
}

std::string ParamGroup::where() const {
  return "[fsdp] rank " + std::to_string(shard_group_->ranks()[shard_group_->rank()]) + ", " + name_ + ": ";
}

// True if gathering needs neither an exchange nor a copy to the device that could run ahead.
bool ParamGroup::is_unsharded_locally() const {
  return gather_group().size() == 1 && !view_.front()->devices().offloads();
}

void ParamGroup::check_gathered() const {
  if (unsharded_) return;
  throw InternalError(
      where() + "a part of it is called while its parameters are sharded (" + names() +
      "). Call the module that fully_shard was applied to, not its forward() or its children; or gather "
      "it with fsdp::unshard() first");
}

std::string ParamGroup::names() const {
  std::string text;
  for (const auto* param : view_) text += (text.empty() ? "" : ", ") + param->fqn();
  return text;
}

void ParamGroup::unshard() {
  if (unsharded_ || all_gather_ || is_unsharded_locally()) return;
  const Operation operation({"FSDP::all_gather", MemoryUse::kGathered}, name_);
  context_->all_gather_stream.waits_for(parts_are_there_);
  context_->all_gather_stream.run([this] {
    const at::Tensor scales = scales_to_gather();
    all_gather_ = start_all_gather(view_, gather_group());
    all_gather_->scales = scales;
  });
}

// Gives the parameters that are rounded to float8 their scales. Returns them, float32 [parameters]; undefined if there
// are none. Collective over the shards, unless they were computed before.
at::Tensor ParamGroup::scales_to_gather() {
  std::vector<FsdpParam*> rounded;
  std::ranges::copy_if(view_, std::back_inserter(rounded), &FsdpParam::needs_scale);
  if (rounded.empty()) return {};
  const at::Tensor scales = float8_scales_.defined() ? float8_scales_ : float8_scales(rounded, *shard_group_);
  for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i]->set_scale(scales[static_cast<std::int64_t>(i)]);
  return scales;
}

// Copies the scales that a gather has used to memory of the compute stream, where layers keep them for backward.
void ParamGroup::keep_scales(const at::Tensor& scales) {
  if (!scales.defined()) return;
  const at::Tensor kept = scales.clone();
  std::int64_t next = 0;
  for (auto* param : float8_params(view_)) param->set_scale(kept[next++]);
}

// Casts the shards, in one kernel on a device; without a cast they are the parameters.
void ParamGroup::gather_from_self() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> targets, sources;
  for (auto* param : view_) {
    const auto target = param->gather_target_of_self();
    if (!target.defined()) continue;
    targets.push_back(target);
    sources.push_back(param->sharded_padded().view(-1));
  }
  kernels::copy_past_caches(targets, sources);
}

void ParamGroup::wait_for_unshard() {
  if (unsharded_) return;
  const Operation operation({"FSDP::all_gather_copy_out", MemoryUse::kGathered}, name_);
  if (is_unsharded_locally()) {
    gather_from_self();
  } else {
    TITAN_CHECK(all_gather_, where() + "wait without unshard");
    context_->all_gather_stream.current_waits();
    context_->release_retired();  // before the copy out of this one takes memory
    finish_all_gather(*all_gather_, view_, gather_group().size());
    keep_scales(all_gather_->scales);
    std::vector<at::Tensor> buffers = {std::move(all_gather_->output), std::move(all_gather_->scales)};
    all_gather_.reset();
    if (phase_ == Phase::kForward && context_->last_of_forward != this) {
      context_->retire(std::move(buffers));
    } else {
      context_->release(std::move(buffers));
    }
  }
  for (auto* param : view_) param->to_unsharded();
  unsharded_ = true;
  sharded_post_forward_ = false;
  parts_are_there_.reset();
  if (observer_)
    for (const auto* param : view_) observer_->gathered(*param);
}

void ParamGroup::tell_freed() const {
  if (!observer_ || !unsharded_) return;
  for (const auto* param : view_) observer_->frees(*param);
}

void ParamGroup::reshard() {
  drop_unused_all_gather();
  if (!unsharded_ && !sharded_post_forward_) return;
  tell_freed();
  for (auto* param : view_) param->to_sharded();
  unsharded_ = sharded_post_forward_ = false;
}

void ParamGroup::set_reshard_after_forward(bool reshard) {
  reshard_after_forward_ = reshard;
  if (!sharded_post_forward_) post_forward_group_.reset();
}

// Keeps parts only if a backward follows; they would be stale after an optimizer step.
void ParamGroup::reshard_after_forward() {
  if (!post_forward_group_ || !at::GradMode::is_enabled()) return reshard();
  const Operation operation({nullptr, MemoryUse::kGathered}, name_);
  tell_freed();
  for (auto* param : view_) param->to_sharded_post_forward(post_forward_group_->rank(), post_forward_group_->size());
  unsharded_ = false;
  sharded_post_forward_ = true;
  parts_are_there_ = context_->all_gather_stream.record_current();
}

// Drops an all-gather that was prefetched and never used. Its buffer belongs to the all-gather stream, which must not
// reuse it while it is being written; and the work that follows on the compute stream may write the shards.
void ParamGroup::drop_unused_all_gather() {
  if (!all_gather_) return;
  context_->all_gather_stream.run([this] { all_gather_->work.wait(); });
  context_->all_gather_stream.current_waits();
  all_gather_.reset();
}

void ParamGroup::pre_forward() {
  phase_ = Phase::kForward;
  unshard();
  wait_for_unshard();
  prefetch_for_forward();
}

// On a device the host runs ahead and issues the next group's gather while this one computes. On CPU it does not, so
// this starts the group that came next in the previous iteration, to communicate during this one's computation.
void ParamGroup::prefetch_for_forward() {
  for (auto* group : forward_prefetch_) group->unshard();
  if (in_backward()) return;
  if (!context_->is_root_forward) return;
  auto& order = context_->forward_order;
  const auto& last = context_->last_forward_order;
  const std::size_t position = order.size();
  order.push_back(this);
  if (!forward_prefetch_.empty() || context_->all_gather_stream.exists()) return;
  if (position + 1 < last.size() && last[position] == this) last[position + 1]->unshard();
}

void ParamGroup::post_forward() {
  if (in_backward()) return;  // a recomputation: its backward follows at once
  if (reshard_after_forward_.value_or(!is_root_)) reshard_after_forward();
  if (at::GradMode::is_enabled()) {
    forward_uses_.push_back(context_->post_forward_order.size());
    context_->post_forward_order.push_back(this);
  }
}

void ParamGroup::pre_backward() {
  if (phase_ == Phase::kPreBackward) return;  // done before: a group of several modules, or a module used several times
  phase_ = Phase::kPreBackward;
  unshard();
  wait_for_unshard();
  prefetch_for_backward();
}

// Prefetches the group that backward needs next, the one whose forward came just before this one's: its all-gather
// runs during this group's computation.
void ParamGroup::prefetch_for_backward() {
  for (auto* group : backward_prefetch_) group->unshard();
  if (forward_uses_.empty()) return;
  const std::size_t position = forward_uses_.back();
  forward_uses_.pop_back();
  if (backward_prefetch_.empty() && position > 0) context_->post_forward_order[position - 1]->unshard();
}

void ParamGroup::post_backward() {
  if (phase_ == Phase::kPostBackward) return;
  phase_ = Phase::kPostBackward;
  if (!reduce_grads_) {
    for (auto* param : view_) param->keep_unsharded_grad(policy_.reduce_dtype);
    if (reshard_after_backward_) reshard();
    return;
  }
  std::vector<FsdpParam*> params;
  std::vector<at::Tensor> grads;
  for (auto* param : view_) {
    if (at::Tensor grad = param->take_unsharded_grad(); grad.defined()) {
      params.push_back(param);
      grads.push_back(std::move(grad));
    }
  }
  if (reshard_after_backward_) reshard();
  sum_gradient_terms(params, grads);
  if (!params.empty()) start_reduction(std::move(params), std::move(grads));
}

void ParamGroup::keep_gradients() {
  for (auto* param : view_) param->keep_unsharded_grad(policy_.reduce_dtype);
}

void ParamGroup::reduce_kept_gradients() {
  if (!unsharded_) return;  // its parameters were not used
  const bool reduced = std::exchange(reduce_grads_, true), all_reduced = std::exchange(all_reduce_grads_, true);
  phase_ = Phase::kPreBackward;
  post_backward();
  reduce_grads_ = reduced;
  all_reduce_grads_ = all_reduced;
}

void ParamGroup::start_reduction(std::vector<FsdpParam*> params, std::vector<at::Tensor> grads) {
  const Operation operation({"FSDP::post_backward_reduce", MemoryUse::kReduction}, name_);
  ReductionRule rule;
  rule.shard_group = shard_group_;
  rule.replicate_group = replicate_group_;
  rule.all_reduce = all_reduce_grads_;
  rule.partial = &partial_reduction_;
  rule.reduce_dtype = policy_.reduce_dtype;
  rule.divide_factor = divide_factor_.value_or(mesh_.size());
  rule.observer = observer_;
  rule.label = name_;
  context_->reduce([&] { return std::make_shared<Reduction>(std::move(params), std::move(grads), rule); });
}

void ParamGroup::recover(bool after_backward) {
  reshard();
  forward_uses_.clear();
  phase_ = Phase::kIdle;
  if (!after_backward) return;
  for (auto* param : view_) param->take_unsharded_grad();
}

void ParamGroup::end_backward(bool is_last) {
  if (phase_ != Phase::kIdle) post_backward();  // a group whose inputs need no gradient has not run it
  if (!is_last) return;
  drop_unused_all_gather();
  forward_uses_.clear();
  phase_ = Phase::kIdle;
}

}  // namespace titan::fsdp
