// Chooses between this program's own kernels and ATen's operators: the keys cpu.kernels and cuda.kernels.
#pragma once

#include <c10/core/ScalarType.h>

namespace titan::kernels {

// Selects this program's kernels (true, the default) or ATen's for the process, on CPU and the meta device. Call before
// the first forward pass: a backward pass must use the choice of its forward pass.
void use_own(bool own);
bool uses_own();

// True if matmuls in `dtype` run at this processor's speed. 16-bit matmuls left to ATen are dozens of times slower than
// float32's if the processor has no instructions for them.
bool has_fast_products(c10::ScalarType dtype);

// The same for an accelerator; the default is false.
void use_own_on_device(bool own);
bool uses_own_on_device();

}  // namespace titan::kernels
