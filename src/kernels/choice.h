// Whether this program's own kernels take the place of ATen's operators: the keys cpu.kernels and cuda.kernels.
#pragma once

namespace titan::kernels {

// For the process, on processors and on the meta device; yes until it is said. Before the first forward pass: a backward
// pass belongs to its forward pass.
void use_own(bool own);
bool uses_own();

// The same on an accelerator; no until it is said.
void use_own_on_device(bool own);
bool uses_own_on_device();

}  // namespace titan::kernels
