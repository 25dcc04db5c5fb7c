#include "nn/ops/once_differentiable.h"

#include <ATen/ATen.h>

#include <string>

#include "base/error.h"

namespace titan::nn {

void check_once_differentiable(const char* op) {
  if (!at::GradMode::is_enabled()) return;
  throw InternalError(std::string("[nn] ") + op +
                      " has no second derivative (backward was called with create_graph); set cpu.kernels, or "
                      "cuda.kernels on a GPU, to \"aten\": PyTorch's operators have one");
}

}  // namespace titan::nn
