// RMSNorm (also of a sum), rotary embedding and SwiGLU. In float32 and bfloat16 each is one operator of this program's own
// where the device has them and they are asked for (kernels/fused.h), which keeps its inputs for backward (the sum in
// place of its addends) and little more; no second derivatives (InternalError). Elsewhere they are ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

// x [..., D] / rms(x) * weight [D] over the last dim, computed in float32 and rounded once.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// x + delta, both [..., D], in their dtype, and rms_norm() of that sum: the numbers of the two one after the other, to
// the bit, and their gradients as well.
struct NormedSum {
  at::Tensor sum, normed;
};
NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);

// x [B, T, n_heads, head_dim] rotated by freqs_cis [>= T, head_dim / 2], in float32, back in x's dtype.
at::Tensor apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis);

// silu(gate) * up, both of one shape. silu(gate) is rounded to its dtype before it is multiplied.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// The same of ATen's operators, everywhere: the plain reference.
namespace composed {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);
at::Tensor apply_rotary_emb(const at::Tensor& x, const at::Tensor& freqs_cis);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
}  // namespace composed

}  // namespace titan::nn
