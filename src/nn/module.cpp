#include "nn/module.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "distributed/tensor/dtensor.h"
#include "trace/named_range.h"

namespace titan::nn {
namespace {

std::string dotted(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void collect_modules(Module& module, const std::string& prefix, std::vector<NamedModule>& out) {
  out.push_back({prefix, &module});
  for (const auto& [name, child] : module.children()) collect_modules(*child, dotted(prefix, name), out);
}

}  // namespace

dist::ShardSpec NamedParameter::spec() const {
  return parameter->sharding ? parameter->sharding->spec : dist::ShardSpec::replicated(tensor().sizes().vec());
}

dist::DTensor NamedParameter::dtensor() const {
  if (!parameter->sharding) throw InternalError(fqn + " is not sharded: it has no mesh and no placements");
  const auto& sharding = *parameter->sharding;
  if (tensor().sizes() != at::IntArrayRef(sharding.spec.local_shape)) {
    throw InternalError(fqn + " is gathered, " + dist::shape_text(tensor().sizes()) + ", where its shard is " +
                        dist::shape_text(sharding.spec.local_shape) + "; reshard its module first");
  }
  return {tensor(), sharding};
}

void Parameter::set(const at::Tensor& value, const std::optional<dist::Sharding>& new_sharding) {
  Parameter& first = first_slot();
  std::vector<Parameter*> slots = first.ties;
  slots.push_back(&first);
  for (Parameter* slot : slots) {
    *slot->tensor = value;
    slot->sharding = new_sharding;
  }
}

void Parameter::untie() {
  if (tied_to) {
    std::erase(tied_to->ties, this);
  } else if (!ties.empty()) {
    Parameter& next = *ties.front();
    next.ties.assign(ties.begin() + 1, ties.end());
    next.tied_to = nullptr;
    for (Parameter* slot : next.ties) slot->tied_to = &next;
  }
  tied_to = nullptr;
  ties.clear();
}

void distribute(const NamedParameter& parameter, const dist::DeviceMesh& mesh,
                std::vector<dist::Placement> placements) {
  auto& slot = *parameter.parameter;
  if (slot.sharding) {
    const bool is_tied = slot.tied_to || !slot.ties.empty();
    if (is_tied && slot.sharding->placements == placements) return;
    throw InternalError(parameter.fqn +
                        (is_tied ? " is tied, and its parameter is sharded as " : " is sharded already, ") +
                        dist::placements_text(slot.sharding->placements));
  }
  const auto& tensor = parameter.tensor();
  const auto part = dist::DTensor::distribute(tensor, mesh, std::move(placements));
  slot.set(part.to_local().detach().set_requires_grad(tensor.requires_grad()), part.sharding());
}

void Module::run_pre_hooks(Tensors& inputs) {
  for (const auto& hook : pre_hooks_) hook(*this, inputs);
}

at::Tensor Module::wrapped_forward(const Tensors& inputs, std::size_t num_wrappers) {
  if (num_wrappers == 0) return forward(inputs);
  const std::size_t inner = num_wrappers - 1;
  return forward_wrappers_[inner]([this, inner](const Tensors& in) { return wrapped_forward(in, inner); }, inputs);
}

at::Tensor Module::operator()(Tensors inputs) {
  if (name_in_profiles_.empty()) return call(inputs);
  const NamedRange range([this] { return name_in_profiles_; });
  return call(inputs);
}

at::Tensor Module::call(Tensors& inputs) {
  try {
    run_pre_hooks(inputs);
    at::Tensor output = wrapped_forward(inputs, forward_wrappers_.size());
    for (const auto& hook : post_hooks_) hook(*this, inputs, output);
    return output;
  } catch (...) {
    for (const auto& hook : failure_hooks_) hook();
    throw;
  }
}

// Returns the index of a child whose parameters are not sharded. `change`: "replaced".
std::size_t Module::child_to_change(const std::string& name, const char* change) const {
  const auto found = std::ranges::find(children_, name, [](const auto& child) { return child.first; });
  if (found == children_.end()) throw InternalError("there is no child '" + name + "' to be " + change);
  for (const auto& parameter : found->second->named_parameters())
    if (parameter.parameter->sharding || !parameter.parameter->owner.empty())
      throw InternalError("child '" + name + "' cannot be " + change + " any more: " + parameter.fqn +
                          " in it is sharded");
  return static_cast<std::size_t>(found - children_.begin());
}

void Module::replace_child(const std::string& name, std::shared_ptr<Module> module) {
  const std::size_t index = child_to_change(name, "replaced");
  for (const auto& parameter : children_[index].second->named_parameters())
    if (parameter.parameter->tied_to || !parameter.parameter->ties.empty())
      throw InternalError("child '" + name + "' cannot be replaced: " + parameter.fqn + " in it is tied");
  if (!module || !take_child_[index](module))
    throw InternalError("child '" + name + "' cannot be replaced by a module of that type");
  children_[index].second = std::move(module);
}

void Module::drop_child(const std::string& name) {
  const std::size_t index = child_to_change(name, "dropped");
  for (const auto& parameter : children_[index].second->named_parameters(/*remove_duplicate=*/false))
    parameter.parameter->untie();
  take_child_[index](nullptr);
  children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(index));
  take_child_.erase(take_child_.begin() + static_cast<std::ptrdiff_t>(index));
}

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> out;
  collect_modules(*this, "", out);
  return out;
}

std::vector<NamedParameter> Module::named_parameters(bool remove_duplicate) {
  std::vector<NamedParameter> out;
  std::set<const Parameter*> seen;
  for (auto& [prefix, module] : named_modules()) {
    for (auto& parameter : module->parameters_) {
      const bool is_new = seen.insert(&parameter.first_slot()).second;
      if (is_new || !remove_duplicate) out.push_back({dotted(prefix, parameter.name), module, &parameter});
    }
  }
  return out;
}

void Module::tie(const std::string& mine, const std::string& theirs) {
  const auto all = named_parameters(/*remove_duplicate=*/false);
  const auto find = [&](const std::string& fqn) -> Parameter& {
    const auto found = std::ranges::find(all, fqn, &NamedParameter::fqn);
    if (found == all.end()) throw InternalError("there is no parameter '" + fqn + "' to tie");
    return *found->parameter;
  };
  Parameter &slot = find(mine), &first = find(theirs).first_slot();
  if (slot.tensor->sizes() != first.tensor->sizes())
    throw InternalError(mine + " " + dist::shape_text(slot.tensor->sizes()) + " cannot be tied to " + theirs + " " +
                        dist::shape_text(first.tensor->sizes()));
  if (slot.sharding || first.sharding || &slot == &first || slot.tied_to || !slot.ties.empty())
    throw InternalError(mine + " cannot be tied to " + theirs + ": one is sharded, or tied already");
  slot.tied_to = &first;
  first.ties.push_back(&slot);
  *slot.tensor = *first.tensor;
}

void show_names_in_profiles(Module& root) {
  for (const auto& [fqn, module] : root.named_modules())
    if (!fqn.empty()) module->set_name_in_profiles(fqn);
}

void Module::train(bool training) {
  training_ = training;
  for (const auto& [name, child] : children_) child->train(training);
}

void Module::param(std::string name, at::Tensor& member, at::IntArrayRef shape) {
  TITAN_CHECK(std::ranges::none_of(parameters_, [](const Parameter& p) { return p.tied_to || !p.ties.empty(); }),
              "a parameter '" + name + "' is declared after another of its module was tied");
  member = at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(at::kMeta)).set_requires_grad(true);
  parameters_.push_back({.name = std::move(name), .tensor = &member, .sharding = std::nullopt});
}

void Module::add_child(std::string name, std::shared_ptr<Module> module, TakeChild take) {
  children_.emplace_back(std::move(name), std::move(module));
  take_child_.push_back(std::move(take));
}

void ModuleList::append(std::shared_ptr<Module> module) {
  add_child(std::to_string(size()), std::move(module), [](const std::shared_ptr<Module>&) { return true; });
}

at::Tensor ModuleList::forward(const Tensors&) {
  throw InternalError("a ModuleList cannot be called; call its modules");
}

}  // namespace titan::nn
