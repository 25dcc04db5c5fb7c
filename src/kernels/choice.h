// Whether this program's own CPU kernels take the place of ATen's operators: the key cpu.kernels.
#pragma once

namespace titan::kernels {

// For the process; yes until it is said. Before the first forward pass: a backward pass belongs to its forward pass.
void use_own(bool own);
bool uses_own();

}  // namespace titan::kernels
