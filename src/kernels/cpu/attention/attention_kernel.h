// Causal attention on CPU, in place of ATen's flash kernel there: that one makes a oneDNN product of every small tile
// in bfloat16, and the making costs more than the product when heads are small.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/cpu/attention/heads.h"

namespace titan::kernels {

// More queries than these gain from products of matrices.
constexpr std::int64_t kFewQueries = 16;

// The fastest of attention/heads.h that this processor runs.
const AttentionKernels& best_attention();

// True if attention_forward() and attention_backward() take these: float32, bfloat16 or float16 on CPU, q [B, H, T, E],
// k and v [B, K, T, E] with H a multiple of K, elements of the last dim neighbours, E a multiple of
// `kernels.head_dim_unit`.
bool takes(const AttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Output like q, of which [B, T, H, E] is contiguous, and the logarithms of the softmax's sums, float32 [B, H, T].
// Sums are float32's; what bfloat16 kernels may round before, attention/heads.h says. The result does not depend on the
// number of threads.
std::tuple<at::Tensor, at::Tensor> attention_forward(const AttentionKernels& kernels, const at::Tensor& q,
                                                     const at::Tensor& k, const at::Tensor& v, double scale);

// True if cached_attention() takes these: q [B, H, T, E], k and v [B, H, S, E] of one dtype on CPU, float32, bfloat16
// or float16, elements of the last dim neighbours, E a multiple of `kernels.head_dim_unit`.
bool takes(const CachedAttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Each query sees every key: output and logarithms of sums as attention_forward() has them. For few queries.
std::tuple<at::Tensor, at::Tensor> cached_attention(const CachedAttentionKernels& kernels, const at::Tensor& q,
                                                    const at::Tensor& k, const at::Tensor& v, double scale);

// The gradients of q, k and v, like them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const AttentionKernels& kernels,
                                                                  const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& out, const at::Tensor& sums,
                                                                  double scale);

// From now on aten::_scaled_dot_product_flash_attention_for_cpu and its backward are these where they take the tensors
// without mask and dropout: causal attention, and that of at most kFewQueries queries that see all keys, which has no
// backward of its own. Elsewhere they are ATen's own: of operands in float32, if this process has no fast products in
// theirs. For the process, for good; calling it again changes nothing.
void install_attention();

}  // namespace titan::kernels
