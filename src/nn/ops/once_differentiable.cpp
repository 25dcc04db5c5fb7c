#include "nn/ops/once_differentiable.h"

#include <ATen/ATen.h>

#include <string>

#include "base/error.h"

namespace titan::nn {

void check_once_differentiable(const char* op) {
  if (!at::GradMode::is_enabled()) return;
  throw InternalError(std::string("[nn] ") + op +
                      " has no second derivative on CPU (backward was called with create_graph); set cpu.kernels = "
                      "\"aten\" to use PyTorch's operators, which have");
}

}  // namespace titan::nn
