// A check for operators whose gradient has no gradient (torch.autograd.function.once_differentiable).
#pragma once

namespace titan::nn {

// Call at the beginning of a backward pass. Throws InternalError if gradients are on, which means that its own gradient
// is wanted: it would be taken for zero. `op` is the name that a user knows: "RMSNorm".
void check_once_differentiable(const char* op);

}  // namespace titan::nn
