// The operators whose results a checkpointed module may keep instead of recomputing them. Everywhere else they are
// ATen's, gradients included.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

// y = x W^T. x [..., in], weight [out, in] -> [..., out], of x's dtype.
at::Tensor apply_linear(const at::Tensor& x, const at::Tensor& weight);

// Causal attention, scaled by 1 / sqrt(E). q [B, H, T, E], k and v [B, K, T, E], H a multiple of K (grouped queries) ->
// [B, H, T, E]. It can be kept where ATen runs it as one fused kernel.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace titan::nn
