#include "facts/optimizer_facts.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace titan {
namespace {

constexpr std::array kOptimizers = {OptimizerFacts{"AdamW", 2}};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerFacts& facts : kOptimizers) names.emplace_back(facts.name);
  return names;
}

const OptimizerFacts& optimizer_facts(std::string_view name) {
  const auto* const found = std::ranges::find(kOptimizers, name, &OptimizerFacts::name);
  if (found == kOptimizers.end()) throw InternalError("there is no optimizer " + std::string(name));
  return *found;
}

}  // namespace titan
