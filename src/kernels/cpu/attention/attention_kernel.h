// Causal attention on CPU, of whole rows or of a part of their queries and keys. Of whole rows it replaces ATen's flash
// kernel: in bfloat16 ATen creates a oneDNN matmul for every small tile, and with small heads the creation costs more
// than the matmul.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "kernels/cpu/attention/heads.h"

namespace titan::kernels {

// Maximum number of queries for cached_attention(); more queries gain from matmuls.
constexpr std::int64_t kFewQueries = 16;

// Returns the fastest kernels of attention/heads.h that this processor runs.
const AttentionKernels& best_attention();

// True if attention_forward() and attention_backward() take these: float32, bfloat16 or float16 on CPU or the meta
// device, q [B, H, N, E], k and v [B, K, S, E] with H a multiple of K, the last dim contiguous, E a multiple of
// `kernels.head_dim_unit`.
bool takes(const AttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Attention in which query i sees the first min(S, i + 1 + offset) keys, offset >= 0. Returns the output like q, with a
// contiguous transpose [B, N, H, E], and the logarithms of the softmax's sums, float32 [B, H, N]. Sums are in float32;
// attention/heads.h says what bfloat16 kernels round before. The result does not depend on the number of threads. Meta
// tensors give results without values.
std::tuple<at::Tensor, at::Tensor> attention_forward(const AttentionKernels& kernels, const at::Tensor& q,
                                                     const at::Tensor& k, const at::Tensor& v, double scale,
                                                     std::int64_t offset = 0);

// True if cached_attention() takes these: q [B, H, T, E], k and v [B, H, S, E] of one dtype on CPU, float32, bfloat16
// or float16, the last dim contiguous, E a multiple of `kernels.head_dim_unit`.
bool takes(const CachedAttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Attention in which each query sees every key, for few queries. Returns output and logarithms of sums as
// attention_forward() does.
std::tuple<at::Tensor, at::Tensor> cached_attention(const CachedAttentionKernels& kernels, const at::Tensor& q,
                                                    const at::Tensor& k, const at::Tensor& v, double scale);

// Returns the gradients of q, k and v, shaped like them. `out` has the dtype of q. If the keys are a part of those that
// the queries see, `out` and `sums` are those of all parts together, and k and v of one part give that part's gradients
// of k and v and its summand of the gradient of q.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const AttentionKernels& kernels,
                                                                  const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& out, const at::Tensor& sums,
                                                                  double scale, std::int64_t offset = 0);

// Replaces aten::_scaled_dot_product_flash_attention_for_cpu and its backward for the process, permanently. These
// kernels run without mask and dropout for tensors that they take: causal attention of as many queries as keys, and
// attention of at most kFewQueries queries that see all keys, which has no backward of its own. Otherwise ATen's
// kernels run, on float32 copies if this process has no fast matmuls in the operands' dtype. Calling it again changes
// nothing.
void install_attention();

}  // namespace titan::kernels
