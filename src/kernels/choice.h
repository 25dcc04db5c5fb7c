// Whether this program's own kernels take the place of ATen's operators: the keys cpu.kernels and cuda.kernels.
#pragma once

#include <c10/core/ScalarType.h>

namespace titan::kernels {

// For the process, on processors and on the meta device; yes until it is said. Before the first forward pass: a backward
// pass belongs to its forward pass.
void use_own(bool own);
bool uses_own();

// True if products of matrices in `dtype` run at this processor's speed. Those of 16 bits that are left to ATen are
// dozens of times slower than float32's where the processor has no instructions for them.
bool has_fast_products(c10::ScalarType dtype);

// The same on an accelerator; no until it is said.
void use_own_on_device(bool own);
bool uses_own_on_device();

}  // namespace titan::kernels
