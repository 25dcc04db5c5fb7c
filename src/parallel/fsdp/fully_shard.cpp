#include "parallel/fsdp/fully_shard.h"

#include <ATen/ATen.h>

#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "parallel/fsdp/fsdp_state.h"
#include "parallel/fsdp/memory_observer.h"

namespace titan::fsdp {
namespace {

void check_arguments(const std::vector<nn::Module*>& modules, const FullyShardOptions& options) {
  if (modules.empty()) throw InternalError("[fsdp] fully_shard was given no module");
  if (options.mesh.num_axes() != 1 && options.mesh.num_axes() != 2) {
    throw InternalError("[fsdp] fully_shard needs a 1-D or 2-D mesh, got " + std::to_string(options.mesh.num_axes()) +
                        " axes");
  }
  for (const auto* module : modules) {
    if (module->is_container())
      throw InternalError("[fsdp] fully_shard cannot take a ModuleList: it has no forward. Shard its modules");
    if (FsdpState::of(*module)) throw InternalError("[fsdp] fully_shard was applied twice to one module");
  }
}

// Throws if an enclosing module was sharded first: it took all parameters, so this module would silently be part of
// its group.
void check_bottom_up(nn::Module& module) {
  const auto parameters = module.named_parameters();
  if (parameters.empty() || !FsdpState::all_below(module).empty()) return;
  for (const auto& named : parameters) {
    if (named.parameter->owner != kOwner) return;
  }
  throw InternalError("[fsdp] fully_shard was applied to a module that encloses the one with " +
                      parameters.front().fqn +
                      " before it was applied to this one, and took all its parameters; go "
                      "bottom-up, the root last");
}

// Throws if a tied parameter has slots outside of the modules: its other slots would keep another tensor.
void check_ties(const std::string& fqn, const std::vector<nn::Parameter*>& slots) {
  const nn::Parameter& first = slots.front()->first_slot();
  if (slots.size() > first.ties.size()) return;
  throw InternalError(
      "[fsdp] " + fqn +
      " is tied to a parameter of another module; give all modules that have it to one fully_shard call");
}

// Takes the parameters of the modules that are not sharded yet, each once, with every slot that shares it.
std::vector<std::unique_ptr<FsdpParam>> take_parameters(const std::vector<nn::Module*>& modules,
                                                        const FullyShardOptions& options) {
  struct Found {
    std::string fqn;
    std::vector<nn::Parameter*> slots;
    std::int64_t shard_dim;
  };
  std::set<const void*> ignored;
  for (const auto& tensor : options.ignored_params) ignored.insert(tensor.unsafeGetTensorImpl());
  std::vector<Found> order;
  std::map<const void*, std::size_t> by_tensor;
  for (auto* module : modules) {
    for (auto& named : module->named_parameters(/*remove_duplicate=*/false)) {
      if (named.parameter->owner == kOwner) continue;  // an inner call took it
      const void* identity = named.tensor().unsafeGetTensorImpl();
      if (ignored.contains(identity)) continue;
      const auto [found, is_new] = by_tensor.emplace(identity, order.size());
      if (is_new) {
        const auto dim = options.shard_placement_fn ? options.shard_placement_fn(named) : std::nullopt;
        order.push_back({named.fqn, {}, dim.value_or(0)});
      }
      order[found->second].slots.push_back(named.parameter);
    }
  }
  for (const auto& found : order) check_ties(found.fqn, found.slots);
  const auto& mesh = options.mesh;
  const auto devices = Devices::of(mesh.device(), options.offload_policy);
  std::vector<std::unique_ptr<FsdpParam>> params;
  for (auto& [fqn, slots, shard_dim] : order) {
    params.push_back(std::make_unique<FsdpParam>(fqn, std::move(slots), shard_dim, mesh, devices));
  }
  return params;
}

FsdpState& state_of(const nn::Module& module, const char* call) {
  auto* state = FsdpState::of(module);
  if (!state) throw InternalError(std::string("[fsdp] ") + call + " needs a module that fully_shard was applied to");
  return *state;
}

ParamGroup& group_of(const nn::Module& module, const char* call) {
  auto* group = state_of(module, call).group();
  if (!group)
    throw InternalError(std::string("[fsdp] ") + call +
                        ": the module has no parameters of its own, inner fully_shard calls took them all");
  return *group;
}

// Applies `set` to the groups at and below `module`, or to the module's own.
template <typename Set>
void for_groups(nn::Module& module, bool recurse, Set&& set) {
  const auto states = recurse ? FsdpState::all_below(module) : std::vector<FsdpState*>{FsdpState::of(module)};
  for (auto* state : states) {
    if (state && state->group()) set(*state->group());
  }
}

std::vector<ParamGroup*> groups_of(const std::vector<nn::Module*>& modules, const char* call) {
  std::vector<ParamGroup*> groups;
  for (const auto* module : modules) groups.push_back(&group_of(*module, call));
  return groups;
}

}  // namespace

void fully_shard(nn::Module& module, const FullyShardOptions& options) {
  fully_shard(std::vector<nn::Module*>{&module}, options);
}

void fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options) {
  check_arguments(modules, options);
  for (auto* module : modules) check_bottom_up(*module);
  auto params = take_parameters(modules, options);
  auto group = params.empty() ? nullptr : std::make_unique<ParamGroup>(std::move(params), options);
  auto state = std::make_shared<FsdpState>(modules, std::move(group), options);
  for (auto* module : modules) module->attach(FsdpState::kKey, state);
  state->install_hooks();
}

bool is_fully_sharded(const nn::Module& module) { return FsdpState::of(module) != nullptr; }

void to_empty(nn::Module& module, at::Device device, at::ScalarType dtype, std::optional<at::ScalarType> frozen_dtype) {
  const auto dtype_of = [&](const at::Tensor& tensor) {
    return tensor.requires_grad() ? dtype : frozen_dtype.value_or(dtype);
  };
  for (auto* state : FsdpState::all_below(module)) {
    if (!state->group()) continue;
    for (auto* param : state->group()->params()) param->materialize(dtype_of(param->sharded_param()));
  }
  for (auto& named : module.named_parameters()) {
    const auto tensor = named.tensor();
    if (!tensor.is_meta() || named.parameter->owner == kOwner) continue;
    const auto empty = at::zeros(tensor.sizes(), tensor.options().device(device).dtype(dtype_of(tensor)))
                           .set_requires_grad(tensor.requires_grad());
    named.parameter->set(empty, named.parameter->sharding);
  }
}

void set_requires_gradient_sync(nn::Module& module, bool requires_sync, bool recurse) {
  for_groups(module, recurse, [&](ParamGroup& group) {
    group.set_requires_gradient_sync(requires_sync);
    group.set_requires_all_reduce(requires_sync);
  });
}

void set_requires_all_reduce(nn::Module& module, bool requires_all_reduce, bool recurse) {
  for_groups(module, recurse, [&](ParamGroup& group) { group.set_requires_all_reduce(requires_all_reduce); });
}

void set_reshard_after_forward(nn::Module& module, bool reshard, bool recurse) {
  for_groups(module, recurse, [&](ParamGroup& group) { group.set_reshard_after_forward(reshard); });
}

void set_reshard_after_backward(nn::Module& module, bool reshard, bool recurse) {
  for_groups(module, recurse, [&](ParamGroup& group) { group.set_reshard_after_backward(reshard); });
}

void reduce_gradients(nn::Module& module) {
  for_groups(module, /*recurse=*/true, [](ParamGroup& group) { group.reduce_kept_gradients(); });
}
void keep_gradients(nn::Module& module) {
  for_groups(module, /*recurse=*/true, [](ParamGroup& group) { group.keep_gradients(); });
}
void end_reductions(nn::Module& module) { state_of(module, "end_reductions").end_reductions(); }
void set_is_last_backward(nn::Module& module, bool is_last) {
  state_of(module, "set_is_last_backward").set_is_last_backward(is_last);
}

void set_modules_to_forward_prefetch(nn::Module& module, const std::vector<nn::Module*>& modules) {
  constexpr const char* kCall = "set_modules_to_forward_prefetch";
  group_of(module, kCall).set_forward_prefetch(groups_of(modules, kCall));
}

void set_modules_to_backward_prefetch(nn::Module& module, const std::vector<nn::Module*>& modules) {
  constexpr const char* kCall = "set_modules_to_backward_prefetch";
  group_of(module, kCall).set_backward_prefetch(groups_of(modules, kCall));
}

void UnshardHandle::wait() {
  auto* const group = std::exchange(group_, nullptr);
  if (group && group->has_to_be_waited_for()) group->wait_for_unshard();  // else a forward has done it
}

UnshardHandle unshard(nn::Module& module, bool async) {
  UnshardHandle handle(&group_of(module, "unshard"));
  FsdpState::of(module)->unshard();
  if (!async) handle.wait();
  return handle;
}

void reshard(nn::Module& module, bool recurse) {
  if (!recurse) return group_of(module, "reshard").reshard();
  for_groups(module, recurse, [](ParamGroup& group) { group.reshard(); });
}

void set_memory_observer(nn::Module& module, MemoryObserver* observer) {
  for (auto* state : FsdpState::all_below(module))
    if (state->group()) state->group()->set_memory_observer(observer);
}

void set_gradient_divide_factor(nn::Module& module, double factor) {
  for_groups(module, /*recurse=*/true, [&](ParamGroup& group) { group.set_gradient_divide_factor(factor); });
}

}  // namespace titan::fsdp
