// The operators whose results a checkpointed module may keep instead of recomputing them. Outside such a module they
// are ATen's, gradients included.
#pragma once

#include <ATen/core/Tensor.h>

namespace titan::nn {

// y = x W^T. x [..., in], weight [out, in] -> [..., out], of x's dtype.
at::Tensor apply_linear(const at::Tensor& x, const at::Tensor& weight);

// Causal attention, scaled by 1 / sqrt(E). q [B, H, T, E], k and v [B, K, T, E], H a multiple of K (grouped queries) ->
// [B, H, T, E]. It can be kept if ATen runs it as one fused kernel.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Consecutive documents, for one kernel: where they begin and the last one ends, int32 [documents + 1] on their device,
// and the length of the longest.
struct Documents {
  at::Tensor bounds;
  std::int64_t longest;
};

// The same within documents: q [N, H, E], k and v [N, K, E] -> [N, H, E], by ATen's flash attention. Requires
// attends_within_documents(): a GPU with flash attention that is not disabled, float16 or bfloat16.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Documents& documents);
bool attends_within_documents(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace titan::nn
