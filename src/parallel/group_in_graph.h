// Stores the group of a collective in the autograd node that runs its backward. A pointer is enough: all groups live
// as long as the world, and so longer than any graph.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

#include "distributed/process_group.h"

namespace titan::parallel {

inline void keep_group(torch::autograd::AutogradContext* context, dist::ProcessGroup* group) {
  context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
}
inline dist::ProcessGroup& group_in(torch::autograd::AutogradContext* context) {
  return *reinterpret_cast<dist::ProcessGroup*>(context->saved_data["group"].toInt());
}

}  // namespace titan::parallel
