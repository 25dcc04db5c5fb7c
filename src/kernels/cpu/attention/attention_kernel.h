// Causal attention on CPU that replaces ATen's flash kernel. In bfloat16 ATen creates a oneDNN matmul for every small
// tile, and with small heads the creation costs more than the matmul.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/cpu/attention/heads.h"

namespace titan::kernels {

// Maximum number of queries for cached_attention(); more queries gain from matmuls.
constexpr std::int64_t kFewQueries = 16;

// Returns the fastest kernels of attention/heads.h that this processor runs.
const AttentionKernels& best_attention();

// True if attention_forward() and attention_backward() take these: float32, bfloat16 or float16 on CPU, q [B, H, T, E],
// k and v [B, K, T, E] with H a multiple of K, the last dim contiguous, E a multiple of `kernels.head_dim_unit`.
bool takes(const AttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns the output like q, with a contiguous transpose [B, T, H, E], and the logarithms of the softmax's sums,
// float32 [B, H, T]. Sums are in float32; attention/heads.h says what bfloat16 kernels round before. The result does
// not depend on the number of threads.
std::tuple<at::Tensor, at::Tensor> attention_forward(const AttentionKernels& kernels, const at::Tensor& q,
                                                     const at::Tensor& k, const at::Tensor& v, double scale);

// True if cached_attention() takes these: q [B, H, T, E], k and v [B, H, S, E] of one dtype on CPU, float32, bfloat16
// or float16, the last dim contiguous, E a multiple of `kernels.head_dim_unit`.
bool takes(const CachedAttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Attention in which each query sees every key, for few queries. Returns output and logarithms of sums as
// attention_forward() does.
std::tuple<at::Tensor, at::Tensor> cached_attention(const CachedAttentionKernels& kernels, const at::Tensor& q,
                                                    const at::Tensor& k, const at::Tensor& v, double scale);

// Returns the gradients of q, k and v, shaped like them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const AttentionKernels& kernels,
                                                                  const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& out, const at::Tensor& sums,
                                                                  double scale);

// Replaces aten::_scaled_dot_product_flash_attention_for_cpu and its backward for the process, permanently. These
// kernels run without mask and dropout for tensors that they take: causal attention, and attention of at most
// kFewQueries queries that see all keys, which has no backward of its own. Otherwise ATen's kernels run, on float32
// copies if this process has no fast matmuls in the operands' dtype. Calling it again changes nothing.
void install_attention();

}  // namespace titan::kernels
