// Causal attention on CPU, in place of ATen's flash kernel there: that one makes a oneDNN product of every small tile
// in bfloat16, and the making costs more than the product when heads are small.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/cpu/attention/heads.h"

namespace titan::kernels {

// The fastest of attention/heads.h that this processor runs.
const AttentionKernels& best_attention();

// Whether attention_forward() and attention_backward() take these: float32 or bfloat16 on CPU, q [B, H, T, E], k and v
// [B, K, T, E] with H a multiple of K, elements of the last dim neighbours, E a multiple of `kernels.head_dim_unit`.
bool takes(const AttentionKernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Output like q, of which [B, T, H, E] is contiguous, and the logarithms of the softmax's sums, float32 [B, H, T].
// Sums are float32's; what bfloat16 kernels may round before, attention/heads.h says. The result does not depend on the
// number of threads.
std::tuple<at::Tensor, at::Tensor> attention_forward(const AttentionKernels& kernels, const at::Tensor& q,
                                                     const at::Tensor& k, const at::Tensor& v, double scale);

// The gradients of q, k and v, like them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(const AttentionKernels& kernels,
                                                                  const at::Tensor& out_grad, const at::Tensor& q,
                                                                  const at::Tensor& k, const at::Tensor& v,
                                                                  const at::Tensor& out, const at::Tensor& sums,
                                                                  double scale);

// From now on aten::_scaled_dot_product_flash_attention_for_cpu and its backward are these where they take the tensors
// and attention is causal without mask and dropout; ATen's own elsewhere. For the process, for good; calling it again
// changes nothing.
void install_attention();

}  // namespace titan::kernels
