// RMSNorm (also of a sum), rotary embedding and SwiGLU. In float32 and bfloat16 each is one operator of this program's
// own if its device has a kernel in use (kernels/operators.h). It saves its inputs for backward (the sum instead
// of its addends) and little more, and has no second derivative (InternalError). Otherwise ATen's operators run.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

// Returns x [..., D] / rms(x) * weight [D] over the last dim, computed in float32 and rounded once.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// x + delta, both [..., D], in their dtype, and rms_norm() of that sum. Values and gradients equal those of the two
// operations one after the other, to the bit.
struct NormedSum {
  at::Tensor sum, normed;
};
NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);

// Returns x [B, T, n_heads, head_dim] rotated by freqs_cis [>= T, head_dim / 2], computed in float32, in x's dtype.
at::Tensor apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis);

// Same for a head whose element i is rotated with element i + head_dim / 2, not with its neighbor. The factors are
// rounded to x's dtype, and the products and sums too, as in TorchTitan's Qwen3.
at::Tensor apply_rotary_emb_halves(const at::Tensor& x, const at::Tensor& freqs_cis);

// Returns silu(gate) * up, both of the same shape. silu(gate) is rounded to its dtype before it is multiplied.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// The same by ATen's operators on every device: the plain reference.
namespace composed {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);
at::Tensor apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis);
at::Tensor apply_rotary_emb_halves(const at::Tensor& x, const at::Tensor& freqs_cis);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
}  // namespace composed

}  // namespace titan::nn
