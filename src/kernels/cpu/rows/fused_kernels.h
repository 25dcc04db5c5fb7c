// RMSNorm (also of a sum), rotary embedding and SwiGLU on CPU, each in one pass over memory where ATen's operators make
// several, with float32 tensors between them. Results are rounded where theirs are. They do not depend on the number of
// threads.
//
// Tensors are float32 or bfloat16. On the meta device all of these allocate what they would on CPU, and compute
// nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/cpu/rows/fused_rows.h"

namespace titan::kernels {

// The fastest of fused_rows.h that this processor runs.
const FusedKernels& best_fused_kernels();

// Whether the functions below take these tensors. Gradients may have any strides.
bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight);  // contiguous [..., D], [D]
bool takes_add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight);  // delta as x
bool takes_rotation(const at::Tensor& x, const at::Tensor& factors);                              // as rotate() says
bool takes_swiglu(const at::Tensor& gate, const at::Tensor& up);  // contiguous, of one shape

// x / sqrt(mean of squares + eps) * weight, rounded once, and 1 / sqrt(mean of squares + eps) of each row, float32.
std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const FusedKernels& kernels, const at::Tensor& x,
                                                    const at::Tensor& weight, double eps);
// x + delta, rounded, and of that what rms_norm_forward() gives, to the bit.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const FusedKernels& kernels, const at::Tensor& x,
                                                                    const at::Tensor& delta, const at::Tensor& weight,
                                                                    double eps);
// The gradients of x and weight. Weight's is summed in float32 in a fixed order, and rounded once. x's is rounded, and
// `more`, where it is defined, a gradient of x that came another way, added to it as by an operator of its own.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const FusedKernels& kernels, const at::Tensor& out_grad,
                                                     const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& rrms, const at::Tensor& more = {});

// x [B, T, H, E] of any strides; pairs of neighbours in the last dim are complex numbers, multiplied by contiguous
// complex64 factors [>= T, E / 2], or by their conjugates (the gradient). Contiguous.
at::Tensor rotate(const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate);

// silu(gate) * up, silu(gate) rounded before it is multiplied.
at::Tensor swiglu_forward(const FusedKernels& kernels, const at::Tensor& gate, const at::Tensor& up);
// The gradients of gate and up.
std::tuple<at::Tensor, at::Tensor> swiglu_backward(const FusedKernels& kernels, const at::Tensor& out_grad,
                                                   const at::Tensor& gate, const at::Tensor& up);

}  // namespace titan::kernels
