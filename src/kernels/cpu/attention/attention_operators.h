// The CPU's kernels of the attention operators in kernels/operators.h.
#pragma once

namespace torch {
class Library;
}

namespace titan::kernels {

// Registers the CPU's kernels in `library`, for the CPU or for the meta device, where results have no values.
void register_attention_operators(torch::Library& library);

}  // namespace titan::kernels
