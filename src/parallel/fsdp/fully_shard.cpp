#include "parallel/fsdp/fully_shard.h"

#include <ATen/ATen.h>

#include <map>

#include "base/error.h"

namespace titan::fsdp {
namespace {

void check_arguments(const std::vector<nn::Module*>& modules, const FullyShardOptions& options) {
  if (modules.empty()) throw InternalError("[fsdp] fully_shard was given no module");
  if (options.mesh.ndim() != 1 && options.mesh.ndim() != 2) {
    throw InternalError("[fsdp] fully_shard needs a 1-D or 2-D mesh, got " + std::to_string(options.mesh.ndim()) + " dims");
  }
  for (const auto* module : modules) {
    if (module->is_container()) throw InternalError("[fsdp] fully_shard cannot take a ModuleList: it has no forward. Shard its modules");
    if (FsdpState::of(*module)) throw InternalError("[fsdp] fully_shard was applied twice to one module");
  }
}

// The parameters of the modules that are not sharded yet, each once, with every slot that shares it.
std::vector<std::unique_ptr<FsdpParam>> take_parameters(const std::vector<nn::Module*>& modules, const dist::DeviceMesh& mesh) {
  struct Found {
    std::string fqn;
    std::vector<nn::Parameter*> slots;
  };
  std::vector<Found> order;
  std::map<const void*, std::size_t> by_tensor;
  for (auto* module : modules) {
    for (auto& named : module->named_parameters()) {
      if (named.parameter->spec) continue;  // an inner call took it
      const void* identity = named.tensor().unsafeGetTensorImpl();
      const auto [found, is_new] = by_tensor.emplace(identity, order.size());
      if (is_new) order.push_back({named.fqn, {}});
      order[found->second].slots.push_back(named.parameter);
    }
  }
  const auto& shard_dim = mesh.dim_names().back();
  std::vector<std::unique_ptr<FsdpParam>> params;
  for (auto& [fqn, slots] : order) {
    params.push_back(std::make_unique<FsdpParam>(fqn, std::move(slots), mesh.local_rank(shard_dim), mesh.size(shard_dim)));
  }
  return params;
}

}  // namespace

void fully_shard(nn::Module& module, const FullyShardOptions& options) { fully_shard(std::vector<nn::Module*>{&module}, options); }

void fully_shard(const std::vector<nn::Module*>& modules, const FullyShardOptions& options) {
  check_arguments(modules, options);
  auto params = take_parameters(modules, options.mesh);
  auto group = params.empty() ? nullptr : std::make_unique<ParamGroup>(std::move(params), options);
  auto state = std::make_shared<FsdpState>(modules, std::move(group), options);
  for (auto* module : modules) module->attach(FsdpState::kKey, state);
  state->install_hooks();
}

void to_empty(nn::Module& module, at::Device device, at::ScalarType dtype) {
  for (auto* state : FsdpState::all_below(module)) {
    if (!state->group()) continue;
    for (auto* param : state->group()->params()) param->materialize(device, dtype);
  }
  for (auto& named : module.named_parameters()) {
    auto& tensor = named.tensor();
    if (!tensor.is_meta()) continue;
    tensor = at::zeros(tensor.sizes(), tensor.options().device(device).dtype(dtype)).set_requires_grad(tensor.requires_grad());
  }
}

void set_gradient_divide_factor(nn::Module& module, double factor) {
  for (auto* state : FsdpState::all_below(module)) {
    if (state->group()) state->group()->set_gradient_divide_factor(factor);
  }
}

}  // namespace titan::fsdp
