// AdamW with clipping on CPU, in one pass over a parameter's shard; in-place clipping and ATen's _fused_adamw_ need
// two.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/rows/adamw_rows.h"

namespace titan::kernels {

// Returns the fastest kernels of adamw_rows.h that this processor runs.
const AdamWKernels& best_adamw();

// A parameter, its gradient and its moments.
struct AdamWTensors {
  const at::Tensor& param;
  const at::Tensor& grad;
  const at::Tensor& exp_avg;
  const at::Tensor& exp_avg_sq;
};

// True if adamw() takes these: float32 on CPU, contiguous, of the same shape, all of them defined.
bool takes_adamw(const AdamWTensors& tensors);

// Updates parameter and moments in place with the gradient times step.grad_factor; the gradient is not changed. On
// x86-64, the result equals ATen's grad.mul_() followed by _fused_adamw_ to the bit, if both use the same instruction
// set (ATEN_CPU_CAPABILITY=default has no fused multiply-adds). It does not depend on the number of threads.
void adamw(const AdamWKernels& kernels, const AdamWTensors& tensors, const AdamWStep& step);

// Does the same in the same pass over memory, and sets the sums of the bits that it has read and written. They do not
// depend on the number of threads.
void adamw_and_sum(const AdamWKernels& kernels, const AdamWTensors& tensors, const AdamWStep& step, AdamWSums& read,
                   AdamWSums& wrote);

// Returns the sum that adamw_and_sum() would read of a tensor that it takes.
std::uint64_t adamw_sum(const AdamWKernels& kernels, const at::Tensor& tensor);

}  // namespace titan::kernels
