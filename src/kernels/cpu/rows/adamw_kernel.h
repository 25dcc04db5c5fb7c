// AdamW with clipping on CPU: one pass over a parameter's shard, where clipping in place and ATen's _fused_adamw_ make
// two.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/rows/adamw_rows.h"

namespace titan::kernels {

// The fastest of adamw_rows.h that this processor runs.
const AdamWKernels& best_adamw();

// A parameter, its gradient and its moments.
struct AdamWTensors {
  const at::Tensor& param;
  const at::Tensor& grad;
  const at::Tensor& exp_avg;
  const at::Tensor& exp_avg_sq;
};

// Whether adamw() takes these: float32 on CPU, contiguous, of one shape, all of them defined.
bool takes_adamw(const AdamWTensors& tensors);

// Updates parameter and moments in place by the gradient times step.grad_factor; the gradient itself stays as it is.
// On x86-64, the bits are those that ATen's grad.mul_() and then _fused_adamw_ leave, as long as both take code for the
// same instructions (ATEN_CPU_CAPABILITY=default is without fused multiply-adds). They do not depend on the number of
// threads.
void adamw(const AdamWKernels& kernels, const AdamWTensors& tensors, const AdamWStep& step);

}  // namespace titan::kernels
