// For operators whose gradient has none itself (torch.autograd.function.once_differentiable).
#pragma once

namespace titan::nn {

// At the beginning of a backward pass, which runs with gradients on when its own gradient is wanted: that would be
// taken for zero. Throws InternalError then. `op` as a user knows it: "RMSNorm".
void check_once_differentiable(const char* op);

}  // namespace titan::nn
