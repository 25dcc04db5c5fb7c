// Facts about the optimizers, by name, for estimates that are made without them. No torch. optim/make_optimizer.h makes
// the optimizers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace titan {

struct OptimizerFacts {
  std::string_view name;  // [optimizer].name
  int moments;            // tensors of the parameter's shape that it keeps for each parameter, in optimizer.state_dtype
};

// Returns the names that [optimizer].name may have.
std::vector<std::string> optimizer_names();

// Returns the facts of an optimizer. Throws InternalError for an unknown name: the configuration was checked before.
const OptimizerFacts& optimizer_facts(std::string_view name);

}  // namespace titan
