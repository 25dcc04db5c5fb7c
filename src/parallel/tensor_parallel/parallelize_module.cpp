#include "parallel/tensor_parallel/parallelize_module.h"

#include <string_view>

#include "base/error.h"

namespace titan::tp {
namespace {

// Removes and returns the first name of a path, up to its first dot.
std::string_view take_name(std::string_view& path) {
  const auto dot = path.find('.');
  const auto name = path.substr(0, dot);
  path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  return name;
}

bool is_named(std::string_view fqn, std::string_view pattern) {
  while (!fqn.empty() && !pattern.empty()) {
    const auto name = take_name(fqn), wanted = take_name(pattern);
    if (wanted != "*" && wanted != name) return false;
  }
  return fqn.empty() && pattern.empty();
}

}  // namespace

void parallelize_module(nn::Module& module, const dist::DeviceMesh& mesh, const Plan& plan) {
  const auto modules = module.named_modules();
  for (const auto& [pattern, style] : plan) {
    bool names_one = false;
    for (const auto& named : modules) {
      if (!is_named(named.fqn, pattern)) continue;
      style->apply(named, mesh);
      names_one = true;
    }
    if (!names_one)
      throw InternalError("the tensor-parallel plan has a row for " + pattern + ", which names no module");
  }
  for (const auto& parameter : module.named_parameters()) {
    if (!parameter.parameter->sharding)
      throw InternalError("the tensor-parallel plan says nothing about " + parameter.fqn);
  }
}

}  // namespace titan::tp
