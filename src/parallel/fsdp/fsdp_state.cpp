#include "parallel/fsdp/fsdp_state.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "parallel/fsdp/agreement.h"

namespace titan::fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Callback : torch::CustomClassHolder {
  explicit Callback(std::function<void()> c) : call(std::move(c)) {}
  std::function<void()> call;
};

// Passes its inputs on. Its backward runs when the gradients of all inputs are ready, that is, when the module's
// backward is done.
struct PostBackwardNode : torch::autograd::Function<PostBackwardNode> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Callback>& callback,
                               at::TensorList inputs) {
    context->saved_data["callback"] = c10::IValue::make_capsule(callback);
    return inputs.vec();
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    c10::static_intrusive_pointer_cast<Callback>(context->saved_data["callback"].toCapsule())->call();
    grads.insert(grads.begin(), at::Tensor());  // the callback has no gradient
    return grads;
  }
};

}  // namespace

FsdpState::FsdpState(std::vector<nn::Module*> modules, std::unique_ptr<ParamGroup> group, FullyShardOptions options)
    : modules_(std::move(modules)), group_(std::move(group)), options_(std::move(options)) {}

void FsdpState::install_hooks() {
  for (auto* module : modules_) {
    module->add_pre_hook([this](nn::Module& m, nn::Tensors& inputs) { pre_forward(m, inputs); });
    module->add_post_hook([this](nn::Module& m, const nn::Tensors&, at::Tensor& output) { post_forward(m, output); });
    module->add_failure_hook([this] { fail_forward(); });
  }
  if (!group_) return;
  // The modules that use the parameters. Their hook runs after pre_forward above if a module has both.
  std::set<const nn::Parameter*> slots;
  for (const auto* param : group_->params()) slots.insert(param->slots().begin(), param->slots().end());
  std::set<nn::Module*> users;
  for (auto* module : modules_) {
    for (const auto& named : module->named_parameters(/*remove_duplicate=*/false)) {
      if (slots.contains(named.parameter)) users.insert(named.module);
    }
  }
  for (auto* user : users) {
    user->add_pre_hook([this](nn::Module&, nn::Tensors&) { group_->check_gathered(); });
  }
}

void FsdpState::init_context() {
  context_ = std::make_shared<CommContext>();
  context_->init(options_.mesh.device());
}

std::vector<FsdpState*> FsdpState::all_below(nn::Module& module) {
  std::vector<FsdpState*> states;
  for (const auto& [fqn, m] : module.named_modules()) {
    auto* state = of(*m);
    if (state && std::find(states.begin(), states.end(), state) == states.end()) states.push_back(state);
  }
  return states;
}

void FsdpState::become_root(nn::Module& module) {
  if (modules_.size() > 1)
    throw InternalError("[fsdp] the first module called must be a single root, not one of a list given to fully_shard");
  states_ = all_below(module);
  // A group that was gathered before may have a gather in flight on its own context's stream: that context is used.
  for (auto* state : states_) {
    if (state->context_) context_ = state->context_;
  }
  if (!context_) init_context();
  const auto modules = module.named_modules();
  std::map<const nn::Parameter*, std::string> names;
  for (const auto& named : module.named_parameters()) names[&named.parameter->first_slot()] = named.fqn;
  for (auto* state : states_) {
    if (state != this && state->root_) {
      throw InternalError(
          "[fsdp] a module below the root ran before the root's first forward; call the root module first");
    }
    state->context_ = context_;
    state->root_ = this;
    is_last_backward_ &= state->is_last_backward_;
    if (!state->group_) continue;
    context_->last_of_forward = state->group_.get();
    for (auto* param : state->group_->params()) param->set_fqn(names.at(&param->slots().front()->first_slot()));
    state->group_->lazy_init(*context_, state->name_below(modules), state == this);
  }
  check_ranks_agree_below(module);
}

// Checks in module order, in one exchange for all groups that communicate over the same ranks.
void FsdpState::check_ranks_agree_below(nn::Module& root) const {
  std::map<const nn::Parameter*, std::pair<std::size_t, const FsdpParam*>> taken;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i]->group_) continue;
    for (const auto* param : states_[i]->group_->params()) taken[&param->slots().front()->first_slot()] = {i, param};
  }
  std::vector<std::pair<dist::ProcessGroup*, std::vector<ParamFacts>>> lists;
  for (const auto& named : root.named_parameters()) {
    const auto found = taken.find(&named.parameter->first_slot());
    if (found == taken.end()) continue;
    const auto& [group, param] = found->second;
    const ParamFacts facts{named.fqn, named.spec().global_shape, param->stored_dtype(),
                           group,     param->shard_dim(),        named.tensor().requires_grad()};
    const auto& mesh = states_[group]->options_.mesh;
    if (mesh.device().is_meta()) return;  // the other ranks of a dry run do not exist
    for (const auto& axis : mesh.axis_names()) {
      auto* ranks = &mesh.group(axis);
      auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& l) { return l.first == ranks; });
      if (list == lists.end()) list = lists.insert(list, {ranks, {}});
      list->second.push_back(facts);
    }
  }
  for (const auto& [ranks, params] : lists) check_ranks_agree(params, *ranks);
}

// Returns "layers.3", or "norm, output" for a group of several modules.
std::string FsdpState::name_below(const std::vector<nn::NamedModule>& root_modules) const {
  std::string text;
  for (const auto& [fqn, module] : root_modules) {
    if (of(*module) != this) continue;
    text += (text.empty() ? "" : ", ") + (fqn.empty() ? "the root" : fqn);
  }
  return text;
}

void FsdpState::unshard() {
  if (!context_) {
    init_context();
    group_->lazy_init(*context_, "a module gathered before its root ran", /*is_root=*/false);
  }
  context_->all_gather_stream.waits_for_current();  // the writes to the shards
  group_->unshard();
}

void FsdpState::pre_forward(nn::Module& module, nn::Tensors& inputs) {
  if (!root_) become_root(module);
  const bool is_first = to_run_.empty();
  if (is_first) {
    to_run_ = modules_;
    begin_forward();
  }
  if (options_.mp_policy.cast_forward_inputs && options_.mp_policy.param_dtype) {
    for (auto& input : inputs) {
      if (input.defined() && input.is_floating_point()) input = input.to(*options_.mp_policy.param_dtype);
    }
  }
  if (!is_first) return;
  if (group_) group_->pre_forward();
  register_post_backward(inputs);
}

void FsdpState::register_post_backward(nn::Tensors& inputs) {
  if (!group_ || !at::GradMode::is_enabled()) return;
  variable_list with_grad;
  for (const auto& input : inputs) {
    if (input.defined() && input.requires_grad()) with_grad.push_back(input);
  }
  if (with_grad.empty()) return;
  const auto callback = c10::make_intrusive<Callback>([this] { group_->post_backward(); });
  auto outputs = PostBackwardNode::apply(callback, at::TensorList(with_grad));
  std::size_t next = 0;
  for (auto& input : inputs) {
    if (input.defined() && input.requires_grad()) input = outputs[next++];
  }
}

// Acts only for the outermost module of a forward. The optimizer may have written the shards before it.
void FsdpState::begin_forward() {
  if (in_backward()) return;  // a recomputation
  // A module does not run within itself, nor the root within another: a forward that seems to be running has thrown.
  if (context_->iter_forward_root && context_->iter_forward_root != this && root_ != this) return;
  if (root_->callback_queued_) root_->recover(/*after_backward=*/true);
  if (root_->owes_recovery_) root_->recover(/*after_backward=*/false);
  context_->iter_forward_root = this;
  context_->is_root_forward = root_ == this;
  context_->all_gather_stream.waits_for_current();
  if (root_ != this) return;
  for (auto* state : states_) {
    if (state != this && !state->to_run_.empty()) {  // it ran on its own and did not finish
      state->to_run_.clear();
      if (state->group_) state->group_->reshard();
    }
    if (state->group_) state->group_->forget_forwards();
  }
  context_->post_forward_order.clear();
  context_->last_forward_order = std::exchange(context_->forward_order, {});
  if (!context_->last_forward_order.empty()) context_->last_of_forward = context_->last_forward_order.back();
}

void FsdpState::end_forward() {
  if (context_->iter_forward_root != this) return;
  context_->iter_forward_root = nullptr;
  context_->release_retired();
}

// Frees the gathered parameters, so that the next forward gathers again. If that fails as well, as it does where
// another rank is gone, the caller gets the error of the forward alone, and the next forward tries again.
void FsdpState::fail_forward() noexcept {
  if (!root_ || context_->iter_forward_root != this) return;
  root_->owes_recovery_ = true;
  try {
    root_->recover(/*after_backward=*/false);
  } catch (const std::exception& error) {
    spdlog::debug("[fsdp] cannot free yet what a forward that failed has gathered: {}", error.what());
  }
}

// Restores the state before a forward or backward that threw, without the gradients of that backward.
void FsdpState::recover(bool after_backward) {
  context_->iter_forward_root = nullptr;
  callback_queued_ = false;
  for (auto* state : states_) {
    state->to_run_.clear();
    if (state->group_) state->group_->recover(after_backward);
  }
  context_->release_retired();
  if (after_backward) context_->end_backward();
  owes_recovery_ = false;
}

void FsdpState::post_forward(nn::Module& module, at::Tensor& output) {
  std::erase(to_run_, &module);
  if (!to_run_.empty()) return;
  if (group_) group_->post_forward();
  end_forward();
  if (output.requires_grad()) {
    output.register_hook([this](const at::Tensor& grad) {
      pre_backward();
      return grad;
    });
  }
  if (options_.mp_policy.output_dtype && output.is_floating_point())
    output = output.to(*options_.mp_policy.output_dtype);
}

// Warns of modules of a list given to fully_shard that did not run: the group was not freed after the last one.
void FsdpState::warn_of_modules_not_run() {
  if (to_run_.empty()) return;
  spdlog::warn(
      "[fsdp] {} of the {} modules of one fully_shard call did not run in this forward; their group ({}) stays "
      "gathered between forward and backward. Give such a module a call of its own",
      to_run_.size(), modules_.size(), group_ ? group_->name() : "no parameters");
  to_run_.clear();
}

void FsdpState::pre_backward() {
  if (!root_->callback_queued_) {
    root_->callback_queued_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([root = root_] { root->root_post_backward(); });
  }
  if (group_) group_->pre_backward();
}

void FsdpState::end_reductions() {
  if (!root_) return;  // no forward has run
  for (auto* state : states_)
    if (state->group_) state->group_->end_backward(/*is_last=*/true);
  context_->end_backward();
}

void FsdpState::root_post_backward() {
  for (auto* state : states_) {
    state->warn_of_modules_not_run();
    if (state->group_) state->group_->end_backward(is_last_backward_);
  }
  if (is_last_backward_) context_->end_backward();
  callback_queued_ = false;
}

}  // namespace titan::fsdp
