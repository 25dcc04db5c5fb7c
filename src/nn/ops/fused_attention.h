// ATen's fused attention kernels, forward and backward apart: for operators that keep or merge what a forward kernel
// returns. q [B, H, N, E], k and v [B, K, S, E].
#pragma once

#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace titan::nn {

// True if the CPU's kernel runs: on CPU, and on the meta device (nn/ops/meta_kernels.h).
bool runs_on_host(const at::Tensor& q);

// Returns the kernel that scaled_dot_product_attention chooses. On the meta device it is the CPU's fused one.
at::SDPBackend attention_backend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal);

// True if the kernel is a fused one that attend() can call for heads as wide as q's: on an accelerator, flash attention
// needs a multiple of 8.
bool is_fused(at::SDPBackend backend, const at::Tensor& q);

// True on a GPU if no fused kernel takes grouped queries: in float32, which flash and cuDNN do not take, or if the user
// allows only ATen's efficient one. That one needs as many key heads as query heads. Without it only the formula is
// left, which keeps scores of N x S elements for backward.
bool needs_a_key_for_each_query(const at::Tensor& q, const at::Tensor& k);

// Returns x [B, K, S, E] as [B, heads, S, E]: head h is head h / (heads / K) of `x`.
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads);

// While one exists, PyTorch chooses on a GPU only among attention kernels that need no plan for each shape. Those of
// cuDNN's kernel, its first choice on new GPUs, take 0.05 to 0.2 s each: where lengths vary from call to call, that is
// longer than the attention. The user's choice counts otherwise; of cuDNN alone, it allows every other kernel. Create
// and destroy it on the thread that attends.
class AttentionWithoutPlans {
 public:
  explicit AttentionWithoutPlans(at::Device device);
  ~AttentionWithoutPlans();
  AttentionWithoutPlans(const AttentionWithoutPlans&) = delete;
  AttentionWithoutPlans& operator=(const AttentionWithoutPlans&) = delete;

 private:
  struct Choice {
    bool cudnn, flash, efficient, math;
  };
  static Choice current();
  static void set(const Choice& choice);

  bool is_on_gpu_;
  Choice before_ = current();
};

double attention_scale(const at::Tensor& q);  // 1 / sqrt(E)

// Holds what a forward kernel returns for its backward. The sums' logarithms have the kernel's own shape. Seed and
// offset are those of the unused dropout, undefined for the CPU's kernel.
struct FusedAttention {
  at::Tensor out, sums, seed, offset;
};

// Runs a kernel for which is_fused() is true. Causal means that query i sees keys 0 to i, for as many queries as keys.
FusedAttention attend(at::SDPBackend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      bool is_causal, double scale);

// Returns the gradients of q, k and v. Those not in `wanted` may be undefined.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_backward(at::SDPBackend backend, const at::Tensor& grad,
                                                               const at::Tensor& q, const at::Tensor& k,
                                                               const at::Tensor& v, const FusedAttention& forward,
                                                               bool is_causal, double scale,
                                                               const std::array<bool, 3>& wanted);

}  // namespace titan::nn
