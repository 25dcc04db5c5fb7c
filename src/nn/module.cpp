#include "nn/module.h"

#include <ATen/ATen.h>

#include "base/error.h"

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
  return parameter->spec ? *parameter->spec : dist::ShardSpec::replicated(tensor().sizes().vec());
}

at::Tensor Module::operator()(Tensors inputs) {
  for (const auto& hook : pre_hooks_) hook(*this, inputs);
  at::Tensor output =
      forward_wrapper_ ? forward_wrapper_([this](const Tensors& in) { return forward(in); }, inputs) : forward(inputs);
  for (const auto& hook : post_hooks_) hook(*this, inputs, output);
  return output;
}

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> out;
  collect_modules(*this, "", out);
  return out;
}

std::vector<NamedParameter> Module::named_parameters() {
  std::vector<NamedParameter> out;
  for (auto& [prefix, module] : named_modules()) {
    for (auto& parameter : module->parameters_) out.push_back({dotted(prefix, parameter.name), module, &parameter});
  }
  return out;
}

void Module::train(bool training) {
  training_ = training;
  for (const auto& [name, child] : children_) child->train(training);
}

void Module::param(std::string name, at::Tensor& member, at::IntArrayRef shape) {
  member = at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(at::kMeta)).set_requires_grad(true);
  parameters_.push_back({std::move(name), &member, std::nullopt});
}

void Module::buffer(std::string name, at::Tensor& member) { buffers_.push_back({std::move(name), &member}); }

void ModuleList::append(std::shared_ptr<Module> module) { child(std::to_string(size()), std::move(module)); }

at::Tensor ModuleList::forward(const Tensors&) {
  throw InternalError("a ModuleList cannot be called; call its modules");
}

}  // namespace titan::nn
