// RMSNorm (also of a sum), rotary embedding and SwiGLU on CPU, each in one pass over memory; ATen needs several
// operators, with float32 tensors between them. Results are rounded at the same points as ATen's, and do not depend on
// the number of threads.
//
// Tensors are float32 or bfloat16. On the meta device all functions allocate what they would on CPU, and compute
// nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/cpu/rows/fused_rows.h"

namespace titan::kernels {

// Returns the fastest kernels of fused_rows.h that this processor runs.
const FusedKernels& best_fused_kernels();

// True if the functions below take these tensors. Gradients may have any strides.
bool takes_rms_norm(const at::Tensor& x, const at::Tensor& weight);  // contiguous [..., D], [D]
bool takes_add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight);  // delta like x
bool takes_rotation(const at::Tensor& x, const at::Tensor& factors);  // see rotate(); also for rotate_halves()
bool takes_swiglu(const at::Tensor& gate, const at::Tensor& up);      // contiguous, of the same shape

// Returns x / sqrt(mean of squares + eps) * weight, rounded once, and rrms = 1 / sqrt(mean of squares + eps) per row,
// float32.
std::tuple<at::Tensor, at::Tensor> rms_norm_forward(const FusedKernels& kernels, const at::Tensor& x,
                                                    const at::Tensor& weight, double eps);
// Returns x + delta, rounded, and rms_norm_forward() of that sum, to the bit.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm_forward(const FusedKernels& kernels, const at::Tensor& x,
                                                                    const at::Tensor& delta, const at::Tensor& weight,
                                                                    double eps);
// Returns the gradients of x and weight. weight's is summed in float32 in a fixed order, and rounded once. x's is
// rounded; then `more`, if defined, another gradient of x, is added as by a separate operator.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const FusedKernels& kernels, const at::Tensor& out_grad,
                                                     const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& rrms, const at::Tensor& more = {});

// Multiplies pairs of adjacent elements in the last dim of x [B, T, H, E] (any strides), as complex numbers, by
// contiguous complex64 factors [>= T, E / 2], or by their conjugates (the gradient). Returns a contiguous tensor.
at::Tensor rotate(const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate);
// The same for pairs of element i of a head and element i + E / 2.
at::Tensor rotate_halves(const FusedKernels& kernels, const at::Tensor& x, const at::Tensor& factors, bool conjugate);

// Returns silu(gate) * up, with silu(gate) rounded before the multiplication.
at::Tensor swiglu_forward(const FusedKernels& kernels, const at::Tensor& gate, const at::Tensor& up);
// Returns the gradients of gate and up.
std::tuple<at::Tensor, at::Tensor> swiglu_backward(const FusedKernels& kernels, const at::Tensor& out_grad,
                                                   const at::Tensor& gate, const at::Tensor& up);

}  // namespace titan::kernels
