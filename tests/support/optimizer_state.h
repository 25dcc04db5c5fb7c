// Finds a tensor of an optimizer's state by name, for tests.
#pragma once

#include <string>

#include "base/error.h"
#include "optim/optimizer.h"

namespace titan::test {

inline at::Tensor state_of(optim::Optimizer& optimizer, std::size_t parameter, const std::string& name) {
  for (const auto& each : optimizer.state(parameter))
    if (each.name == name) return each.tensor;
  throw InternalError("the optimizer has no state " + name);
}

}  // namespace titan::test
